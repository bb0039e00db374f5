#include "common/hash.h"

#include "common/check.h"

#include <sodium.h>
#include <string.h>
#include <sys/random.h>

static unsigned char key[crypto_shorthash_KEYBYTES];

/* Before main(): no table is older than the key, and no process is forked without it. */
__attribute__((constructor)) static void key_make(void)
{
	check(getrandom(key, sizeof(key), 0) == sizeof(key));
}

uint64_t hash_keyed(const void *bytes, size_t len)
{
	unsigned char out[crypto_shorthash_BYTES];
	uint64_t hash;

	crypto_shorthash(out, bytes, len, key);
	memcpy(&hash, out, sizeof(hash));
	return hash;
}
