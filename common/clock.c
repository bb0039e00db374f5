#include "common/clock.h"

#include "common/check.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	time_t seconds = (time_t)(wall_ms / 1000 - (wall_ms % 1000 < 0));
	struct tm tm;
	size_t n;

	gmtime_r(&seconds, &tm);
	n = (size_t)snprintf(out, CLOCK_RFC3339_SIZE, "%04d",
			     tm.tm_year + 1900); /* %Y has no leading zeros */
	n += strftime(out + n, CLOCK_RFC3339_SIZE - n, "-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_RFC3339_SIZE - n, ".%03dZ", ms);
	return out;
}

int rfc3339_parse(const char *text, int64_t *wall_ms)
{
	/* strptime() also takes numbers with fewer digits, with signs and after spaces. */
	static const char form[] = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
				   "(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$";
	char plain[sizeof("2026-11-21 12:00:00+01:00")];
	const char *offset, *digit;
	regmatch_t parts[3]; /* all, the fraction, the offset */
	regex_t regex;
	struct tm tm = { 0 };
	int rc, ms = 0, day, second;
	long offset_s;
	time_t minute_s;

	check(regcomp(&regex, form, REG_EXTENDED) == 0);
	rc = regexec(&regex, text, 3, parts, 0);
	regfree(&regex);
	if (rc)
		return -1;
	offset = text + parts[2].rm_so;
	digit = text + parts[1].rm_so + 1; /* not used without a fraction */
	for (int scale = 100; parts[1].rm_so >= 0 && digit < offset; digit++, scale /= 10)
		ms += (*digit - '0') * scale;
	snprintf(plain, sizeof(plain), "%.10s %.8s%s", text, text + 11,
		 strchr("Zz", *offset) ? "+00:00" : offset);
	if (!strptime(plain, "%Y-%m-%d %H:%M:%S%z", &tm) || tm.tm_sec > 60 ||
	    labs(tm.tm_gmtoff) >= 24 * 3600)
		return -1;
	/* timegm() would turn the 31st of a shorter month into the 1st of the next. */
	day = tm.tm_mday;
	second = tm.tm_sec;
	offset_s = tm.tm_gmtoff;
	tm.tm_sec = 0;
	minute_s = timegm(&tm);
	if (tm.tm_mday != day)
		return -1;
	*wall_ms = ((int64_t)minute_s + second - offset_s) * 1000 + ms;
	return *wall_ms <= RFC3339_LAST_MS ? 0 : -1;
}
