#include "common/backoff.h"

#include "common/check.h"
#include "common/hash.h"

#include <string.h>
#include <sys/random.h>

static int64_t jitter(int64_t wait)
{
	uint32_t random;

	check(getrandom(&random, sizeof(random), 0) == sizeof(random));
	return wait / 2 + random % (wait / 2 + 1);
}

int64_t backoff_ms(struct backoff *backoff)
{
	int64_t wait = backoff->next_ms ? backoff->next_ms : BACKOFF_FIRST_MS;

	backoff->next_ms = wait * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : wait * 2;
	return jitter(wait);
}

int64_t backoff_connect_ms(struct backoff *backoff)
{
	if (backoff->tries < BACKOFF_CONNECT_TRIES) {
		backoff->tries++;
		backoff->next_ms = BACKOFF_CONNECT_MS;
		return jitter(BACKOFF_CONNECT_MS);
	}
	return backoff_ms(backoff);
}

int backoff_tells(struct backoff *backoff, const char *why, int64_t now_ms)
{
	uint64_t reason = hash_keyed(why, strlen(why)) | 1;
	int64_t pause_ms = backoff->told == reason ? BACKOFF_TELL_MS : BACKOFF_TELL_OTHER_MS;

	if (backoff->told && now_ms - backoff->told_ms < pause_ms)
		return 0;
	backoff->told = reason;
	backoff->told_ms = now_ms;
	return 1;
}

void backoff_reset(struct backoff *backoff)
{
	*backoff = (struct backoff){ 0 };
}
