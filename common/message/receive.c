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

/* The length up to the last dot of `text`, or -1. */
static ptrdiff_t last_dot(const char *text, size_t len)
{
	const char *dot = memrchr(text, '.', len);

	return dot ? dot - text : -1;
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

/* From both ends: the user may contain dots. */
int receive_parse(struct receive *receive, const char *text, size_t len)
{
	const char *user = memchr(text, '.', len);
	ptrdiff_t index, batch;

	if (!user || id_parse(text, (size_t)(user - text), &receive->coupon))
		return -1;
	user++;
	len -= (size_t)(user - text);
	index = last_dot(user, len);
	if (index < 0 || index_parse(user + index + 1, len - (size_t)index - 1, &receive->index))
		return -1;
	batch = last_dot(user, (size_t)index);
	if (batch < 0 || ulid_parse(&receive->batch, user + batch + 1, (size_t)(index - batch - 1)))
		return -1;
	return user_id_parse(&receive->user, user, (size_t)batch);
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

int receive_code_valid(const char *text, size_t len)
{
	const char *dot = memchr(text, '.', len);
	size_t set_len = dot ? (size_t)(dot - text) : len, serial_len = len - set_len - 1;
	int64_t number;

	if (id_parse(text, set_len, &number))
		return 0;
	return !dot || (serial_len == 1 && dot[1] == '0') ||
	       id_parse(dot + 1, serial_len, &number) == 0;
}

void receive_code_format(int64_t set, int64_t serial, char out[RECEIVE_CODE_MAX + 1])
{
	size_t len = id_format(set, out);

	out[len++] = '.';
	if (serial == 0)
		memcpy(out + len, "0", 2);
	else
		id_format(serial, out + len);
}

int receive_tail_parse(const char *text, size_t len, size_t *key_len)
{
	const char *tab = memchr(text, '\t', len);

	*key_len = tab ? (size_t)(tab - text) : len;
	if (*key_len > 0 && !receive_key_valid(text, *key_len))
		return -1;
	return tab && !receive_code_valid(tab + 1, len - *key_len - 1) ? -1 : 0;
}

size_t receive_tail_key_len(const char *tail)
{
	return strcspn(tail, "\t");
}

const char *receive_tail_code(const char *tail, size_t len, size_t key_len, size_t *code_len)
{
	size_t begin = key_len < len ? key_len + 1 : len;

	*code_len = len - begin;
	return tail + begin;
}
