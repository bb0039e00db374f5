#include "common/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t now_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_monotonic_us(void)
{
	return now_us(CLOCK_MONOTONIC);
}

int64_t clock_monotonic_ms(void)
{
	return now_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_wall_ms(void)
{
	return now_us(CLOCK_REALTIME) / 1000;
}

char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	int ms = (int)((wall_ms % 1000 + 1000) % 1000); /* before 1970 too */
	time_t seconds = (time_t)((wall_ms - ms) / 1000);
	struct tm tm;
	size_t n;

	gmtime_r(&seconds, &tm);
	n = (size_t)snprintf(out, CLOCK_RFC3339_SIZE, "%04d",
			     tm.tm_year + 1900); /* %Y has no leading zeros */
	n += strftime(out + n, CLOCK_RFC3339_SIZE - n, "-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_RFC3339_SIZE - n, ".%03dZ", ms);
	return out;
}
