/* Preloaded into a command: appends one byte to the file COUNT_SLEEPS for each usleep(). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int usleep(useconds_t us)
{
	struct timespec pause = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
	int fd = open(getenv("COUNT_SLEEPS"), O_WRONLY | O_APPEND | O_CREAT, 0600);

	if (fd < 0 || write(fd, ".", 1) != 1)
		abort();
	close(fd);
	return nanosleep(&pause, NULL);
}
