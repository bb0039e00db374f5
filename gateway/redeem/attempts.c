#include "gateway/redeem/attempts.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_MS 1000

/* A user who was wrong. */
struct attempter {
	struct user_id user;
	int64_t wrong;
	int64_t until_ms;
	UT_hash_handle hh;
};

/* The second that is running, and how many codes of a form were wrong in it. */
struct second {
	int64_t begun_ms;
	int64_t wrong;
};

struct attempts {
	struct attempts_limits limits;
	struct attempter *users; /* a uthash table, in the order in which they were wrong last */
	struct second *forms;
	size_t forms_n;
};

struct attempts *attempts_new(const struct attempts_limits *limits)
{
	struct attempts *attempts = calloc(1, sizeof(*attempts));

	check(attempts != NULL);
	attempts->limits = *limits;
	return attempts;
}

static void forget(struct attempts *attempts, struct attempter *user)
{
	HASH_DEL(attempts->users, user);
	free(user);
}

void attempts_free(struct attempts *attempts)
{
	if (!attempts)
		return;
	while (attempts->users)
		forget(attempts, attempts->users);
	free(attempts->forms);
	free(attempts);
}

static struct attempter *user_find(const struct attempts *attempts, const struct user_id *user)
{
	struct attempter *found;

	HASH_FIND(hh, attempts->users, user->text, user->len, found);
	return found;
}

static struct second *form_second(struct attempts *attempts, size_t form, int64_t now_ms)
{
	struct second *second;

	if (form >= attempts->forms_n) {
		attempts->forms = reallocarray(attempts->forms, form + 1, sizeof(*second));
		check(attempts->forms != NULL);
		memset(attempts->forms + attempts->forms_n, 0,
		       (form + 1 - attempts->forms_n) * sizeof(*second));
		attempts->forms_n = form + 1;
	}
	second = &attempts->forms[form];
	if (now_ms - second->begun_ms >= SECOND_MS)
		*second = (struct second){ .begun_ms = now_ms };
	return second;
}

int64_t attempts_wait_ms(struct attempts *attempts, const struct user_id *user, size_t form,
			 int64_t now_ms)
{
	const struct attempter *found = user_find(attempts, user);
	const struct second *second = form_second(attempts, form, now_ms);
	int64_t wait_ms = 0;

	if (attempts->limits.wrong_max > 0 && second->wrong >= attempts->limits.wrong_max)
		wait_ms = second->begun_ms + SECOND_MS - now_ms;
	if (found && found->until_ms - now_ms > wait_ms)
		wait_ms = found->until_ms - now_ms;
	return wait_ms;
}

static int64_t wait_after(int64_t wrong)
{
	int64_t wait_ms = ATTEMPTS_FIRST_WAIT_MS;

	while (--wrong > 0 && wait_ms < ATTEMPTS_LONGEST_WAIT_MS)
		wait_ms *= 2;
	return wait_ms < ATTEMPTS_LONGEST_WAIT_MS ? wait_ms : ATTEMPTS_LONGEST_WAIT_MS;
}

/* The user's entry, as the last of the table. */
static struct attempter *user_last(struct attempts *attempts, const struct user_id *user)
{
	struct attempter *found = user_find(attempts, user);

	if (found) {
		HASH_DEL(attempts->users, found);
	} else {
		if (HASH_COUNT(attempts->users) >= attempts->limits.users_max)
			forget(attempts, attempts->users);
		found = calloc(1, sizeof(*found));
		check(found != NULL);
		found->user = *user;
	}
	HASH_ADD_KEYPTR(hh, attempts->users, found->user.text, found->user.len, found);
	return found;
}

void attempts_wrong(struct attempts *attempts, const struct user_id *user, size_t form,
		    int64_t now_ms)
{
	const int64_t free_max = attempts->limits.free_max;
	struct attempter *found;

	form_second(attempts, form, now_ms)->wrong++;
	if (free_max == 0)
		return;
	found = user_last(attempts, user);
	if (now_ms - found->until_ms > ATTEMPTS_FORGET_MS)
		found->wrong = 0;
	found->wrong++;
	found->until_ms = now_ms;
	if (found->wrong > free_max)
		found->until_ms += wait_after(found->wrong - free_max);
}
