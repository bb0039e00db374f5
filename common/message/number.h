/* Whole numbers as text, for the arguments of commands and queries. */
#ifndef COMMON_MESSAGE_NUMBER_H
#define COMMON_MESSAGE_NUMBER_H

#include <stdint.h>

#define NUMBER_SIZE 24 /* of any 64-bit number, with its NUL */

/* Returns `out`. */
const char *number_text(int64_t number, char out[NUMBER_SIZE]);
/*
 * Parses a number of 1 to 16 digits, as the scripts do. 0, or -1 when it is malformed or above
 * `most`.
 */
int number_parse(const char *text, int64_t most, int64_t *number);

#endif
