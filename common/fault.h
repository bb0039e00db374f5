/*
 * Fault points: places where a build with FAULTS=1 dies or freezes as selected by
 *
 *	COUPON_FAULT=NAME:N:ACTION[,NAME:N:ACTION]...
 *
 * At the N-th time that the process comes to the point NAME: kill (SIGKILL), stop (SIGSTOP) or
 * sleep (100 ms, that time and each later one). It says so on standard error first, in a line that
 * begins with "fault: ". Any other build has no code here at all.
 */
#ifndef COMMON_FAULT_H
#define COMMON_FAULT_H

#ifdef COUPON_FAULTS

#include <stddef.h>

enum fault {
#define FAULT(name, text) name,
#include "common/fault_table.h"
#undef FAULT
	FAULT_COUNT
};

/* From any thread. */
void fault_point(enum fault fault);

/*
 * As fault_point(), but before it kills half of the data is written to fd. It knows no other
 * action.
 */
void fault_point_half(enum fault fault, int fd, const void *data, size_t len);

#else

#define fault_point(fault) ((void)0)
#define fault_point_half(fault, fd, data, len) ((void)0)

#endif

#endif
