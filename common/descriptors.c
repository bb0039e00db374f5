#include "common/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

int descriptors_are_short(void)
{
	int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct rlimit limit;
	rlim_t kept;

	if (lowest < 0)
		return 1;
	close(lowest);
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return 0;
	kept = limit.rlim_cur / 4 < DESCRIPTORS_KEPT ? limit.rlim_cur / 4 : DESCRIPTORS_KEPT;
	return (rlim_t)lowest >= limit.rlim_cur - kept;
}
