/* A program of somebody else that locks with the installed library. There are no stores. */
#include <couponlock.h>

#include <signal.h>
#include <stdio.h>

static void take(enum lock_backend_id backend, const char *url)
{
	const struct lock_options options = { .kind = LOCK_EXCLUSIVE,
					      .lease_ms = LOCK_LEASE_LEAST_MS };
	struct lock_owner *owner = lock_owner_new(backend, url, NULL, NULL);
	struct lock *lock;
	enum lock_result result = lock_take(owner, "x", &options, &lock);

	printf("%d %d %s\n", (int)result, lock != NULL, lock_error(owner));
	lock_owner_free(owner);
}

int main(void)
{
	const struct lock_argument user = { "user", "a:b" };
	char name[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE];

	signal(SIGPIPE, SIG_IGN);
	take(LOCK_REDIS, "redis://127.0.0.1:1");
	take(LOCK_REDIS, "127.0.0.1:1");
	take(LOCK_POSTGRES, "postgresql://127.0.0.1:1/x");
	printf("%d %s\n", lock_name_format(name, "x:{user}", &user, 1, why), name);
	return 0;
}
