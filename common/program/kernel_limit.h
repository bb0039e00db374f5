/*
 * What the kernel of this machine allows, compared with what a rush needs. The gateway logs each
 * limit that is too low (kernel_limit), and couponctl doctor prints all of them.
 */
#pragma once

#include <stdint.h>

#define LISTEN_BACKLOG 4096 /* connections that wait to be accepted, if the kernel allows so many */
#define DESCRIPTORS_OF_SERVICES 200 /* of a gateway: to the stores, and of the process itself */
#define DESCRIPTORS_FEW_EFFECT "the gateway accepts fewer connections than COUPON_CONNECTIONS_MAX"

struct kernel_limit {
	const char *name;
	int64_t value, wanted; /* at least; 0: it does not count */
	const char *effect;    /* of a lower one */
};

/*
 * The limits that concern a gateway whose processes have so many connections together, from `i` = 0
 * on. 1, 0: this kernel has no such limit, or -1: these were all.
 */
int kernel_limit_read(int i, int64_t connections, struct kernel_limit *limit);

/* The number that a file of the kernel has. 0, or -1: there is no such file. */
int kernel_number_read(const char *path, int64_t *value);
