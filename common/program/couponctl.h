/*
 * couponctl as other programs run it: the one in their own folder, or else in ../bin, where it is
 * installed beside their sbin.
 */
#pragma once

#include <sys/types.h>

/* Its path, found once; to be called first before there are threads. */
const char *couponctl_path(void);

/*
 * Starts it in a process group of its own, with no signal blocked or ignored and these descriptors
 * alone as its input (-1: it is empty), output and error. 0, or errno.
 */
int couponctl_spawn(pid_t *pid, char *const words[], int in, int out, int err);
