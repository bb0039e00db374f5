/*
 * 6. A lock for each user, so that nobody waits for another's: one for each user is checked under
 * it, and the stock is left to UPDATE … WHERE stock > 0.
 */
#include "compare/ways/sell.h"

#include "common/check.h"
#include "lock/name.h"

#include <stdio.h>

static enum outcome buy(struct client *client, const struct request *request)
{
	char name[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE], item[16], user[16];
	const struct lock_argument arguments[] = { { "item", item }, { "user", user } };
	struct lock *lock;
	enum outcome outcome;

	snprintf(item, sizeof(item), "%d", request->item);
	snprintf(user, sizeof(user), "%d", request->user);
	check(lock_name_format(name, "compare:item:{item}:user:{user}", arguments, 2, why) == 0);
	lock = client_lock(client, LOCK_REDIS, LOCK_EXCLUSIVE, name);
	outcome = sell_checked(client, request);
	lock_release(lock);
	return outcome;
}

const struct way way_user_lock = {
	.id = "6",
	.name = "lock for each user",
	.buy = buy,
};
