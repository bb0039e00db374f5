#include "common/backoff.h"

#include "common/check.h"

#include <sys/random.h>

int64_t backoff_ms(struct backoff *backoff)
{
	int64_t wait = backoff->next_ms ? backoff->next_ms : BACKOFF_FIRST_MS;
	uint32_t random;

	backoff->next_ms = wait * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : wait * 2;
	check(getrandom(&random, sizeof(random), 0) == sizeof(random));
	return wait / 2 + random % (wait / 2 + 1);
}

void backoff_reset(struct backoff *backoff)
{
	backoff->next_ms = 0;
}
