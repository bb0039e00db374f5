/*
 * Fault points: places where a build with FAULTS=1 is killed or stopped, as selected by
 *
 *	COUPON_FAULT=NAME:N:ACTION[,NAME:N:ACTION]...
 *
 * The action is taken when the process reaches the point NAME for the N-th time: kill (SIGKILL),
 * stop (SIGSTOP) or sleep (100 ms, that time and each later one). A line that begins with "fault: "
 * is printed on standard error first. Other builds have no code here.
 */
#pragma once

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
 * As fault_point(), but half of the data is written to fd before the kill. There is no other
 * action.
 */
void fault_point_half(enum fault fault, int fd, const void *data, size_t len);

#else

#define fault_point(fault) ((void)0)
#define fault_point_half(fault, fd, data, len) ((void)0)

#endif
