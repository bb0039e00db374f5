/*
 * How often each API key was used, and when last: metrics of a gateway, over all its processes. Of
 * the first KEY_USES_MAX keys that were used since it started; the others are one, KEY_USE_OTHERS.
 */
#pragma once

#include <event2/buffer.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_USES_MAX 1000
#define KEY_USE_OTHERS "others"

/* Before the processes are started. */
void key_uses_init(void);

/* The place of the key with this id, for key_use(). */
size_t key_use_place(const char *id);
/* One request; `is_refused`: by its roles, coupons or rate. */
void key_use(size_t place, int64_t now_ms, int is_refused);

void key_uses_prometheus(struct evbuffer *out);
