/*
 * 6. A lock for each user, so that nobody waits for another's: one for each user is checked under
 * it, and the stock is left to UPDATE … WHERE stock >= 1.
 */
#include "compare/ways/sell.h"

#include "common/check.h"
#include "lock/name.h"

#include <stdio.h>

static enum outcome buy(struct client *client, const struct request *request)
{
	const struct lock_options options = { .kind = LOCK_EXCLUSIVE,
					      .wait = LOCK_KEEP_TRYING,
					      .lease_ms = client->market->lease_ms,
					      .is_watched = 1 };
	char name[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE], item[16], user[16];
	const struct lock_argument arguments[] = { { "item", item }, { "user", user } };
	struct lock_owner *owner = locks_open(client, LOCK_REDIS);
	struct lock *lock;
	enum outcome outcome;

	snprintf(item, sizeof(item), "%d", request->item);
	snprintf(user, sizeof(user), "%d", request->user);
	check(lock_name_format(name, "compare:item:{item}:user:{user}", arguments, 2, why) == 0);
	if (lock_take(owner, name, &options, &lock) != LOCK_TAKEN)
		client_fail("lock", name, lock_error(owner));
	outcome = sell_checked(client, request);
	lock_release(lock);
	return outcome;
}

const struct way way_user_lock = {
	.id = "6",
	.name = "lock for each user",
	.buy = buy,
};
