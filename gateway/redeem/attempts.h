/*
 * Wrong exchange codes, so that nobody finds a code by trying. A user may be wrong a few times;
 * from then on each wrong code makes the user wait, twice as long as before it. And of each form of
 * codes only so many wrong ones are answered a second, whoever sends them. Pure; one thread.
 */
#ifndef GATEWAY_REDEEM_ATTEMPTS_H
#define GATEWAY_REDEEM_ATTEMPTS_H

#include "common/message/user_id.h"

#include <stddef.h>
#include <stdint.h>

#define ATTEMPTS_FIRST_WAIT_MS 1000
#define ATTEMPTS_LONGEST_WAIT_MS 3600000
#define ATTEMPTS_FORGET_MS 3600000 /* after the wait is over */

struct attempts_limits {
	int64_t free_max;  /* wrong codes of a user that cost nothing; 0: no limit */
	int64_t wrong_max; /* a second and form; 0: no limit */
	size_t users_max; /* remembered; beyond it the one who was wrong longest ago is forgotten */
};

struct attempts;

struct attempts *attempts_new(const struct attempts_limits *limits);
void attempts_free(struct attempts *attempts); /* NULL is allowed */

/*
 * How long no code of this user and form is looked at: ms from now, 0: it is looked at now. `form`
 * counts from 0.
 */
int64_t attempts_wait_ms(struct attempts *attempts, const struct user_id *user, size_t form,
			 int64_t now_ms);
/* The user has sent a wrong code of this form. */
void attempts_wrong(struct attempts *attempts, const struct user_id *user, size_t form,
		    int64_t now_ms);

#endif
