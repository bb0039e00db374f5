/*
 * The user ids of a rush. Its users have numbers, one after the other, and the id of a user is made
 * of its number:
 *
 *	                in sequence                             by a seed, here 7
 *	int     1001                                    2090231180005980176
 *	uuid    00000000-0000-4000-8000-0000000003e9    48ab021f-3a19-4184-9d01-fe2f06b3b80f
 *
 * Different numbers have different ids, with a seed too, and the same seed gives the same ids.
 */
#ifndef CTL_RUSH_USERS_H
#define CTL_RUSH_USERS_H

#include "common/message/user_id.h"
#include "ctl/args.h"

#define RUSH_USER_MAX 36    /* bytes of an id: of a UUID */
#define RUSH_NUMBER_BITS 62 /* of UUIDs and with a seed */
#define RUSH_NUMBER_MAX ((INT64_C(1) << RUSH_NUMBER_BITS) - 1)

enum rush_form { RUSH_INT, RUSH_UUID };

struct rush_users {
	uint32_t n;
	int64_t first; /* the number of the first; the next have the numbers after it */
	enum rush_form form;
	int seeded;
	int64_t seed;
};

/* From the command line. A wrong option ends the process. */
void rush_users_read(struct rush_users *users, const struct args *args);

const char *rush_form_text(enum rush_form form);

/* The id of user `i` of 0 to n - 1. */
struct user_id rush_users_id(const struct rush_users *users, uint32_t i);

/*
 * One of `choices`, from 0, for user `i`. It looks random and is made of the seed, 0 without one,
 * and the user's number.
 */
uint32_t rush_users_choice(const struct rush_users *users, uint32_t i, uint32_t choices);

#endif
