/* A user coupon as couponctl export writes it: as a line of CSV or as a line of JSON. */
#ifndef CTL_EXPORT_WINNER_H
#define CTL_EXPORT_WINNER_H

#include "common/clock.h"
#include "common/message/receive.h"
#include "ctl/table/csv_put.h"

#include <stdio.h>

enum winner_format { WINNER_CSV, WINNER_JSONL };

struct winner {
	const char *user;
	const char *receive; /* its id */
	int64_t slot;
	char received_at[CLOCK_RFC3339_SIZE], valid_from[CLOCK_RFC3339_SIZE];
	char valid_to[CLOCK_RFC3339_SIZE]; /* "": without an end */
	const char *key;                   /* "": none */
};

void winner_heading_write(enum winner_format format, FILE *out);
void winner_write(const struct winner *winner, enum winner_format format, enum csv_reader reader,
		  FILE *out);

#endif
