/*
 * Measures the time to make 4 KiB durable as a log does: append, then fdatasync.
 *	bench_fsync FILE TIMES    prints "p50_us p99_us"
 */
#include "common/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APPEND_BYTES 4096

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static char bytes[APPEND_BYTES];
	size_t times = argc == 3 ? (size_t)strtoul(argv[2], NULL, 10) : 0;
	int64_t *took_us = calloc(times + 1, sizeof(*took_us));
	int fd = argc == 3 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (fd < 0 || !took_us || times == 0) {
		fprintf(stderr, "usage: bench_fsync FILE TIMES\n");
		return 2;
	}
	for (size_t i = 0; i < times; i++) {
		int64_t begun_us = clock_monotonic_us();

		if (write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes) || fdatasync(fd)) {
			perror(argv[1]);
			return 1;
		}
		took_us[i] = clock_monotonic_us() - begun_us;
	}
	qsort(took_us, times, sizeof(*took_us), compare);
	printf("%lld %lld\n", (long long)took_us[times / 2], (long long)took_us[times * 99 / 100]);
	unlink(argv[1]);
	close(fd);
	free(took_us);
	return 0;
}
