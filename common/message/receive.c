#include "common/message/receive.h"

#include <string.h>

size_t receive_format(const struct receive *receive, char out[RECEIVE_SIZE])
{
	char *p = out;

	p += id_format(receive->coupon, p);
	*p++ = '.';
	memcpy(p, receive->user.text, receive->user.len);
	p += receive->user.len;
	*p++ = '.';
	ulid_format(&receive->batch, p);
	p += ULID_LEN;
	*p++ = '.';
	if (receive->index == 0) {
		memcpy(p, "0", 2);
		p++;
	} else {
		p += id_format(receive->index, p);
	}
	return (size_t)(p - out);
}

/* The part before the next dot, or up to the end; moves `*text` behind the dot. */
static size_t part_take(const char **text, const char *end, const char **part)
{
	const char *dot = memchr(*text, '.', (size_t)(end - *text));
	const char *stop = dot ? dot : end;

	*part = *text;
	*text = dot ? dot + 1 : end;
	return (size_t)(stop - *part);
}

static int index_parse(const char *text, size_t len, int *index)
{
	int64_t value = 0;

	if (len == 1 && text[0] == '0')
		value = 0;
	else if (id_parse(text, len, &value) || value > RECEIVE_INDEX_MAX)
		return -1;
	*index = (int)value;
	return 0;
}

int receive_parse(struct receive *receive, const char *text, size_t len)
{
	const char *end = text + len, *part;
	size_t n;

	n = part_take(&text, end, &part);
	if (id_parse(part, n, &receive->coupon))
		return -1;
	n = part_take(&text, end, &part);
	if (user_id_parse(&receive->user, part, n))
		return -1;
	n = part_take(&text, end, &part);
	if (ulid_parse(&receive->batch, part, n))
		return -1;
	return index_parse(text, (size_t)(end - text), &receive->index);
}

int receive_key_valid(const char *text, size_t len)
{
	if (len == 0 || len > RECEIVE_KEY_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return 0;
	return 1;
}
