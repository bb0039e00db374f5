/*
 * Amounts of money as people write and read them: 7.00 EUR, 700 JPY, 0.700 KWD. PostgreSQL, the
 * protocol and JSON have them as integers in the smallest unit of the currency.
 */
#pragma once

#include <stdint.h>

/* The number of digits of the currency after the point; 2 if ISO 4217 does not have it. */
int money_digits(const char *currency);

/* With all digits of the currency after the point. Returns `out`. */
#define MONEY_SIZE 32
char *money_text(int64_t units, const char *currency, char out[MONEY_SIZE]);

/*
 * Takes all digits of the currency after the point, or a whole amount without a point. 0, or -1
 * when it is malformed or beyond JSON_INTEGER_MAX.
 */
int money_parse(const char *text, const char *currency, int64_t *units);
