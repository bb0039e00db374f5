/*
 * The terms of a campaign as the command line gives them, for create and edit: a JSON object with
 * columns of the table coupon. What is wrong with one ends the process.
 */
#ifndef CTL_CAMPAIGN_TERMS_H
#define CTL_CAMPAIGN_TERMS_H

#include "ctl/args.h"

#include <cjson/cJSON.h>

#define TERMS_METADATA_BYTES 4096

#define TERMS_OPTIONS                                                                             \
	OPTION("name", "NAME", "its name, 1 to 200 characters"),                                  \
		OPTION("limit", "N", "coupons for each user, 1 to 100; of a new coupon 1"),       \
		OPTION("begin", "T", "nothing is issued before; default: no begin"),              \
		OPTION("end", "T", "nothing is issued from then on; default: no end"),            \
		OPTION("valid-days", "N",                                                         \
		       "a user's coupon is valid for N days of 24 hours, counted from the "       \
		       "receive"),                                                                \
		OPTION("valid-from", "T", "a user's coupon is valid from this time"),             \
		OPTION("valid-to", "T",                                                           \
		       "and until this time; default: valid from the receive, without an end"),   \
		OPTION("amount-off", "N",                                                         \
		       "discount: an amount in the smallest unit of --currency"),                 \
		OPTION("percent-off", "P", "discount: 0.01 to 100 percent"),                      \
		OPTION("cap", "N", "the most that --percent-off takes off, in the same unit"),    \
		OPTION("threshold", "N",                                                          \
		       "the discount is for purchases of at least N, in the same unit"),          \
		OPTION("currency", "CODE",                                                        \
		       "three capital letters as of ISO 4217, for example EUR"),                  \
		OPTION("metadata", "JSON",                                                        \
		       "a JSON object of at most 4096 bytes, for other systems"),                 \
		OPTION("void-returns", "yes|no",                                                  \
		       "a voided receive gives back its stock and its user's slot; default yes"), \
		OPTION("events", "on|off",                                                        \
		       "publish events of the campaign and its receives; default off")

/* Those that are given; cJSON_Delete() follows. `total` is not among them. */
cJSON *terms_read(const struct args *args);
/* Replaces each bound that is given; 0: none. */
void terms_window(const struct args *args, int64_t *begin_ms, int64_t *end_ms);

#endif
