#include "common/message/user_id.h"

#include "common/message/id.h"

#include <stdio.h>
#include <string.h>

size_t user_id_valid_length(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && text[n] >= '!' && text[n] <= '~')
		n++;
	return n;
}

int user_id_parse(struct user_id *user, const char *text, size_t len)
{
	if (len == 0 || len > USER_ID_MAX || user_id_valid_length(text, len) != len)
		return -1;
	user->len = (unsigned char)len;
	memcpy(user->text, text, len);
	user->text[len] = '\0';
	return 0;
}

void user_id_why(const char *text, size_t len, char out[USER_ID_WHY_SIZE])
{
	size_t valid = user_id_valid_length(text, len);

	if (valid < len)
		snprintf(out, USER_ID_WHY_SIZE, "byte %zu is not allowed: must be %s", valid + 1,
			 USER_ID_ALLOWED);
	else
		snprintf(out, USER_ID_WHY_SIZE, "has %zu bytes: must be %s", len, USER_ID_ALLOWED);
}

struct user_id user_id_of_number(int64_t number)
{
	struct user_id user = { .len = 1, .text = "0" };

	if (number > 0)
		user.len = (unsigned char)id_format(number, user.text);
	return user;
}

int user_id_same(const struct user_id *a, const struct user_id *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

int user_id_compare(const struct user_id *a, const struct user_id *b)
{
	return strcmp(a->text, b->text);
}
