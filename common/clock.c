#include "common/clock.h"

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

/* `form`: 0 stands for a digit, T for the separator of date and time, + for a sign. */
static int fits(char form, char c)
{
	switch (form) {
	case '0':
		return c >= '0' && c <= '9';
	case 'T':
		return c == 'T' || c == 't' || c == ' ';
	case '+':
		return c == '+' || c == '-';
	}
	return c == form;
}

/*
 * Returns the text after the form, or NULL when `text` does not match it. Needed because strptime()
 * also accepts numbers with fewer digits, with signs and after spaces.
 */
static const char *form_skip(const char *text, const char *form)
{
	for (; *form; form++, text++)
		if (!fits(*form, *text))
			return NULL;
	return text;
}

/* Milliseconds of a fraction, if there is one; moves `*text` past it. */
static int fraction_take(const char **text)
{
	int ms = 0, scale = 100;

	if (form_skip(*text, ".0"))
		for ((*text)++; fits('0', **text); (*text)++, scale /= 10)
			ms += (**text - '0') * scale;
	return ms;
}

int rfc3339_parse(const char *text, int64_t *wall_ms)
{
	const char *offset = form_skip(text, "0000-00-00T00:00:00"), *end;
	char plain[sizeof("2026-11-21 12:00:00+01:00")];
	struct tm tm = { 0 };
	int ms, day, second;
	long offset_s;
	time_t minute_s;

	if (!offset)
		return -1;
	ms = fraction_take(&offset);
	if (strcmp(offset, "Z") == 0 || strcmp(offset, "z") == 0)
		offset = "+00:00";
	end = form_skip(offset, "+00:00");
	if (!end || *end)
		return -1;
	snprintf(plain, sizeof(plain), "%.10s %.8s%s", text, text + 11, offset);
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
	return 0;
}
