#include "gateway/gate/key_use.h"

#include "common/check.h"
#include "common/keys.h"
#include "common/serve/metrics.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define DIGIT_BITS 5
#define DIGIT_MASK ((1U << DIGIT_BITS) - 1)

struct use {
	atomic_uint_least64_t id; /* 0: of no key yet */
	atomic_uint_least64_t requests;
	atomic_uint_least64_t refused;
	atomic_int_least64_t last_ms; /* wall clock */
};

/* Shared; the last one is that of the others. They are taken in order, and never given back. */
static struct use *uses;

void key_uses_init(void)
{
	void *memory = mmap(NULL, (KEY_USES_MAX + 1) * sizeof(*uses), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED);
	uses = memory;
}

static uint64_t number_of(const char *id)
{
	uint64_t number = 1;

	for (size_t i = 0; i < KEY_ID_LEN; i++) {
		const char *digit = memchr(KEY_ID_DIGITS, id[i], strlen(KEY_ID_DIGITS));

		check(digit != NULL);
		number = number << DIGIT_BITS | (uint64_t)(digit - KEY_ID_DIGITS);
	}
	return number;
}

static void id_write(uint64_t number, char id[KEY_ID_LEN + 1])
{
	for (size_t i = KEY_ID_LEN; i-- > 0; number >>= DIGIT_BITS)
		id[i] = KEY_ID_DIGITS[number & DIGIT_MASK];
	id[KEY_ID_LEN] = '\0';
}

size_t key_use_place(const char *id)
{
	uint64_t number = number_of(id);
	size_t place;

	for (place = 0; place < KEY_USES_MAX; place++) {
		uint64_t there = 0;

		if (atomic_compare_exchange_strong(&uses[place].id, &there, number) ||
		    there == number)
			break;
	}
	return place;
}

void key_use(size_t place, int64_t now_ms, int is_refused)
{
	struct use *use = &uses[place];

	atomic_fetch_add_explicit(&use->requests, 1, memory_order_relaxed);
	if (is_refused)
		atomic_fetch_add_explicit(&use->refused, 1, memory_order_relaxed);
	atomic_store_explicit(&use->last_ms, now_ms, memory_order_relaxed);
}

/* One metric of all keys that were used. */
static void metric_write(struct evbuffer *out, const char *name, const char *type, const char *help,
			 double (*value)(struct use *use))
{
	char id[KEY_ID_LEN + 1];

	exposition_head(out, name, type, help);
	for (size_t place = 0; place <= KEY_USES_MAX; place++) {
		if (atomic_load(&uses[place].last_ms) == 0)
			continue;
		id_write(atomic_load(&uses[place].id), id);
		check(evbuffer_add_printf(out, "couponmq_%s{key=\"%s\"} %.17g\n", name,
					  place < KEY_USES_MAX ? id : KEY_USE_OTHERS,
					  value(&uses[place])) > 0);
	}
}

static double requests_of(struct use *use)
{
	return (double)atomic_load(&use->requests);
}

static double refused_of(struct use *use)
{
	return (double)atomic_load(&use->refused);
}

static double last_of(struct use *use)
{
	return (double)atomic_load(&use->last_ms) / 1000;
}

void key_uses_prometheus(struct evbuffer *out)
{
	metric_write(out, "key_requests_total", "counter", "Requests with an API key, by its id.",
		     requests_of);
	metric_write(out, "key_refused_total", "counter",
		     "Of these, refused by the key's roles, coupons or rate.", refused_of);
	metric_write(out, "key_last_used_seconds", "gauge",
		     "When the API key was used last, as Unix time.", last_of);
}
