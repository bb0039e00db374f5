/* Preloaded: the clock of the machine is CLOCK_AHEAD_S seconds ahead for this program. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
	long rc = syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_REALTIME)
		t->tv_sec += atoi(getenv("CLOCK_AHEAD_S"));
	return (int)rc;
}
