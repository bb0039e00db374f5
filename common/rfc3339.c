#include "common/rfc3339.h"

#include <stddef.h>

/* Exactly `digits` digits, from `least` to `most`; moves `*text` behind them. 0, or -1. */
static int number_take(const char **text, int digits, int least, int most, int *number)
{
	*number = 0;
	for (int i = 0; i < digits; i++, (*text)++) {
		if (**text < '0' || **text > '9')
			return -1;
		*number = *number * 10 + (**text - '0');
	}
	return *number >= least && *number <= most ? 0 : -1;
}

static int char_take(const char **text, char either, char or)
{
	if (**text != either && **text != or)
		return -1;
	(*text)++;
	return 0;
}

static int month_days(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

/* Days from 1970-01-01 to this date of the Gregorian calendar. */
static int64_t epoch_days(int year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
	       day_of_year - 719468;
}

static int fraction_take(const char **text, int *ms)
{
	int scale = 100;

	*ms = 0;
	if (**text != '.')
		return 0;
	(*text)++;
	if (**text < '0' || **text > '9')
		return -1;
	for (; **text >= '0' && **text <= '9'; (*text)++, scale /= 10)
		*ms += (**text - '0') * scale;
	return 0;
}

static int offset_take(const char **text, int *minutes)
{
	int sign, hour, minute;

	*minutes = 0;
	if (**text == 'Z' || **text == 'z') {
		(*text)++;
		return 0;
	}
	sign = **text == '-' ? -1 : 1;
	if (char_take(text, '+', '-') || number_take(text, 2, 0, 23, &hour) ||
	    char_take(text, ':', ':') || number_take(text, 2, 0, 59, &minute))
		return -1;
	*minutes = sign * (hour * 60 + minute);
	return 0;
}

int rfc3339_parse(const char *text, int64_t *wall_ms)
{
	int year, month, day, hour, minute, second, ms, offset;

	if (number_take(&text, 4, 0, 9999, &year) || char_take(&text, '-', '-') ||
	    number_take(&text, 2, 1, 12, &month) || char_take(&text, '-', '-') ||
	    number_take(&text, 2, 1, month_days(year, month), &day))
		return -1;
	if (*text != 't' && *text != ' ' && *text != 'T')
		return -1;
	text++;
	if (number_take(&text, 2, 0, 23, &hour) || char_take(&text, ':', ':') ||
	    number_take(&text, 2, 0, 59, &minute) || char_take(&text, ':', ':') ||
	    number_take(&text, 2, 0, 60, &second) || fraction_take(&text, &ms) ||
	    offset_take(&text, &offset) || *text)
		return -1;
	*wall_ms = (((epoch_days(year, month, day) * 24 + hour) * 60 + minute - offset) * 60 +
		    second) *
			   1000 +
		   ms;
	return 0;
}
