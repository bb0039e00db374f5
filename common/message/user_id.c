#include "common/message/user_id.h"

#include <string.h>

int user_id_parse(struct user_id *user, const char *text, size_t len)
{
	int64_t number;

	if (id_parse(text, len, &number))
		return -1;
	user->len = (unsigned char)len;
	memcpy(user->text, text, len);
	user->text[len] = '\0';
	return 0;
}

struct user_id user_id_of_number(int64_t number)
{
	struct user_id user;

	user.len = (unsigned char)id_format(number, user.text);
	return user;
}

int64_t user_id_number(const struct user_id *user)
{
	int64_t number = 0;

	(void)id_parse(user->text, user->len, &number);
	return number;
}

int user_id_same(const struct user_id *a, const struct user_id *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

int user_id_compare(const struct user_id *a, const struct user_id *b)
{
	return strcmp(a->text, b->text);
}
