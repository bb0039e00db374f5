#include "ctl/rush/users.h"

#include "common/message/json.h"

#include <string.h>

#define USERS_MAX 50000000
/* of a UUID of version 4, in the upper and the lower half */
#define VERSION_4 UINT64_C(0x4000)
#define VARIANT (UINT64_C(1) << 63)
#define WORD UINT64_MAX
#define STEP UINT64_C(0x9e3779b97f4a7c15) /* odd */
#define CHOICE (UINT64_C(1) << 63)        /* keeps choices apart from ids, beyond all seeds */

const char *rush_form_text(enum rush_form form)
{
	static const char *const texts[] = { "int", "uuid" };

	return texts[form];
}

static enum rush_form form_read(const struct args *args)
{
	const char *text = args_text(args, "user-ids");

	if (!text)
		return RUSH_INT;
	for (int form = RUSH_INT; form <= RUSH_UUID; form++)
		if (strcmp(text, rush_form_text((enum rush_form)form)) == 0)
			return (enum rush_form)form;
	args_fail("--user-ids is \"%s\": allowed are int and uuid", text);
}

void rush_users_read(struct rush_users *users, const struct args *args)
{
	int64_t most;

	args_required(args, "users");
	*users = (struct rush_users){
		.n = (uint32_t)args_number(args, "users", 1, USERS_MAX, 1),
		.first = args_has(args, "first-user") ? args_id(args, "first-user") : 1,
		.form = form_read(args),
		.seeded = args_has(args, "user-seed"),
		.seed = args_number(args, "user-seed", 0, JSON_INTEGER_MAX, 0),
	};
	most = users->seeded || users->form == RUSH_UUID ? RUSH_NUMBER_MAX : INT64_MAX;
	if (users->first > most - (users->n - 1))
		args_fail("--first-user is \"%s\": with --users that goes beyond %lld%s",
			  args_text(args, "first-user"), (long long)most,
			  most == INT64_MAX ? "" : ", the last of UUIDs and of a seed");
}

/*
 * The output function of splitmix64 (variant 13 of David Stafford), for numbers of as many bits as
 * `mask` has. Each of its steps can be reversed, at any number of bits: two numbers never have the
 * same result.
 */
static uint64_t mix(uint64_t x, uint64_t mask)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9) & mask;
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb) & mask;
	return x ^ x >> 31;
}

/* Of 62 bits, as the number is. Different numbers have different results: the factor is odd. */
static uint64_t shuffle(const struct rush_users *users, uint64_t number)
{
	uint64_t start = mix((uint64_t)users->seed + 1, WORD);

	return mix((start + number * STEP) & RUSH_NUMBER_MAX, RUSH_NUMBER_MAX);
}

static char *put_hex(char *out, uint64_t bits, int digits)
{
	while (digits-- > 0)
		*out++ = "0123456789abcdef"[bits >> 4 * digits & 15];
	return out;
}

/* `low` has 62 bits. Of `high`, four bits give way to the version. */
static struct user_id uuid(uint64_t high, uint64_t low)
{
	struct user_id user = { .len = RUSH_USER_MAX };
	char *p = user.text;

	high = (high & ~UINT64_C(0xf000)) | VERSION_4;
	low |= VARIANT;
	p = put_hex(p, high >> 32, 8);
	*p++ = '-';
	p = put_hex(p, high >> 16, 4);
	*p++ = '-';
	p = put_hex(p, high, 4);
	*p++ = '-';
	p = put_hex(p, low >> 48, 4);
	*p++ = '-';
	put_hex(p, low, 12);
	return user;
}

struct user_id rush_users_id(const struct rush_users *users, uint32_t i)
{
	uint64_t number = (uint64_t)users->first + i, random = 0;

	if (users->seeded)
		number = shuffle(users, number);
	switch (users->form) {
	case RUSH_INT:
		return user_id_of_number((int64_t)(number + (uint64_t)users->seeded));
	case RUSH_UUID:
		if (users->seeded)
			random = mix(number, WORD);
		return uuid(random, number);
	}
	return (struct user_id){ .len = 0 };
}

uint32_t rush_users_choice(const struct rush_users *users, uint32_t i, uint32_t choices)
{
	uint64_t number = (uint64_t)users->first + i, start;

	if (choices == 1)
		return 0;
	start = mix((uint64_t)users->seed + CHOICE, WORD);
	return (uint32_t)((mix(start + number * STEP, WORD) >> 32) * choices >> 32);
}
