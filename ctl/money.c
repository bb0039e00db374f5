#include "ctl/money.h"

#include "common/message/json.h"
#include "common/message/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIGITS "0123456789"
#define DIGITS_MOST 4
#define NUMBER_LEN_MOST 16 /* of number_parse() */

/*
 * The currencies that do not have two digits, by the column "Minor unit" of list one of ISO 4217,
 * which SIX publishes as its maintenance agency. console/dom.js and the clients in sdk/ have the
 * same table.
 */
static const char *const others[DIGITS_MOST + 1] = {
	[0] = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	[3] = "BHD IQD JOD KWD LYD OMR TND",
	[4] = "CLF UYW",
};

int money_digits(const char *currency)
{
	for (int digits = 0; digits <= DIGITS_MOST; digits++)
		if (others[digits] && strstr(others[digits], currency))
			return digits;
	return 2;
}

char *money_text(int64_t units, const char *currency, char out[MONEY_SIZE])
{
	int digits = money_digits(currency), len;

	len = snprintf(out, MONEY_SIZE, "%0*" PRId64, digits + 1 + (units < 0), units);
	if (digits > 0) {
		memmove(out + len - digits + 1, out + len - digits, (size_t)digits + 1);
		out[len - digits] = '.';
	}
	return out;
}

int money_parse(const char *text, const char *currency, int64_t *units)
{
	size_t digits = (size_t)money_digits(currency), whole = strspn(text, DIGITS);
	const char *part = text[whole] == '.' ? text + whole + 1 : "0000";
	char number[MONEY_SIZE];

	if (whole < 1 || whole + digits > NUMBER_LEN_MOST + DIGITS_MOST)
		return -1;
	if (text[whole] && (text[whole] != '.' || digits == 0 || strlen(part) != digits ||
			    strspn(part, DIGITS) != digits))
		return -1;
	snprintf(number, sizeof(number), "%.*s%.*s", (int)whole, text, (int)digits, part);
	text = number + strspn(number, "0");
	return number_parse(*text ? text : "0", JSON_INTEGER_MAX, units);
}
