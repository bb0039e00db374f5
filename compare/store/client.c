#include "compare/store/client.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>

void client_fail(const char *store, const char *what, const char *why)
{
	fprintf(stderr, "compare: %s: %s: %s\n", store, what, why);
	exit(1);
}

struct client *client_new(struct market *market)
{
	struct client *client = calloc(1, sizeof(*client));

	check(client != NULL);
	client->market = market;
	return client;
}

/* A client uses one store for its locks. */
static struct lock_owner *locks_open(struct client *client, enum lock_backend_id store)
{
	const struct market *market = client->market;
	const char *const urls[] = { [LOCK_REDIS] = market->redis,
				     [LOCK_POSTGRES] = market->postgres_locks,
				     [LOCK_ZOOKEEPER] = market->zookeeper };

	if (!client->locks)
		client->locks = lock_owner_new(store, urls[store], NULL, NULL);
	check(client->locks != NULL);
	return client->locks;
}

struct lock *client_lock(struct client *client, enum lock_backend_id store, enum lock_kind kind,
			 const char *name)
{
	const struct lock_options options = { .kind = kind,
					      .wait = LOCK_KEEP_TRYING,
					      .lease_ms = client->market->lease_ms,
					      .is_watched = client->market->pause_every == 0 };
	struct lock_owner *owner = locks_open(client, store);
	struct lock *lock;

	if (lock_take(owner, name, &options, &lock) != LOCK_TAKEN)
		client_fail("lock", name, lock_error(owner));
	return lock;
}

void client_free(struct client *client)
{
	lock_owner_free(client->locks);
	if (client->gateway_in)
		fclose(client->gateway_in);
	if (client->gateway_out)
		fclose(client->gateway_out);
	if (client->queue)
		queue_close(client->queue);
	if (client->redis)
		redisFree(client->redis);
	if (client->postgres)
		PQfinish(client->postgres);
	free(client->own);
	free(client);
}
