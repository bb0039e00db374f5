/*
 * 5. A lock of lock/ around read-then-write. The item stores the highest fence: a holder whose
 * lease has ended is refused, and tries again.
 */
#include "compare/ways/sell.h"

#include "common/check.h"
#include "lock/name.h"

#include <stdio.h>

static enum outcome buy_under(struct client *client, const struct request *request,
			      enum lock_backend_id store, enum lock_kind kind, const char *name)
{
	enum outcome outcome;

	do {
		struct lock *lock = client_lock(client, store, kind, name);

		client->attempts++;
		outcome = sell_read_then_write(client, request, lock_fence(lock));
		client->attempts_failed += outcome == FAILED;
		lock_release(lock);
	} while (outcome == FAILED);
	return outcome;
}

static enum outcome buy_item(struct client *client, const struct request *request,
			     enum lock_backend_id store, enum lock_kind kind)
{
	char name[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE], item[16];
	const struct lock_argument argument = { "item", item };

	snprintf(item, sizeof(item), "%d", request->item);
	check(lock_name_format(name, "compare:item:{item}", &argument, 1, why) == 0);
	return buy_under(client, request, store, kind, name);
}

static enum outcome buy_redis(struct client *client, const struct request *request)
{
	return buy_item(client, request, LOCK_REDIS, LOCK_EXCLUSIVE);
}

static enum outcome buy_redis_fair(struct client *client, const struct request *request)
{
	return buy_item(client, request, LOCK_REDIS, LOCK_FAIR);
}

static enum outcome buy_redis_one(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_REDIS, LOCK_EXCLUSIVE, "compare:shop");
}

static enum outcome buy_postgres(struct client *client, const struct request *request)
{
	return buy_item(client, request, LOCK_POSTGRES, LOCK_EXCLUSIVE);
}

const struct way way_lock_redis = {
	.id = "5d",
	.name = "lock/ Redis",
	.buy = buy_redis,
};
const struct way way_lock_redis_fair = {
	.id = "5e",
	.name = "lock/ Redis, fair",
	.buy = buy_redis_fair,
};
const struct way way_lock_redis_one = {
	.id = "5f",
	.name = "lock/ Redis, one for all",
	.buy = buy_redis_one,
};
const struct way way_lock_postgres = {
	.id = "5g",
	.name = "lock/ PostgreSQL",
	.buy = buy_postgres,
};

#ifdef WITH_ZOOKEEPER
static enum outcome buy_zookeeper(struct client *client, const struct request *request)
{
	return buy_item(client, request, LOCK_ZOOKEEPER, LOCK_EXCLUSIVE);
}

const struct way way_lock_zookeeper = {
	.id = "5h",
	.name = "lock/ ZooKeeper",
	.buy = buy_zookeeper,
};
#endif
