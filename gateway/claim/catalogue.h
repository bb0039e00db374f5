/*
 * The exchange codes as this process knows them: the spaces and sets of generated codes, with their
 * keys, and the words. It asks PostgreSQL every second whether they have changed. Event-loop thread
 * only.
 */
#pragma once

#include "codes/book.h"
#include "common/message/receive.h"
#include "gateway/read/lookup.h"

#include <cjson/cJSON.h>

enum catalogue_kind {
	CATALOGUE_CODE,
	CATALOGUE_MAYBE, /* it may be an imported code: PostgreSQL knows */
	CATALOGUE_NONE
};

/* What a text is, and of CATALOGUE_CODE the code that can be claimed. */
struct catalogue_found {
	enum catalogue_kind kind;
	int64_t coupon;
	char code[RECEIVE_CODE_MAX + 1]; /* receive_code_valid() */
};

struct catalogue;

/* `keys_path` (COUPON_CODE_KEYS, "" for none) and `lookup` must outlive it. */
struct catalogue *catalogue_new(struct lookup *lookup, const char *keys_path);

/* To be called often. */
void catalogue_tick(struct catalogue *catalogue, int64_t now_ms);
/* Looks soon, not only when the next look is due. Returns the number of that look. */
uint64_t catalogue_renew(struct catalogue *catalogue);
/* Whether that look, or a later one, has ended: all that was changed before it is known. */
int catalogue_has(const struct catalogue *catalogue, uint64_t look);
int catalogue_is_loaded(const struct catalogue *catalogue);

#define CATALOGUE_TEXTS_MAX 64

/*
 * Which codes at most CATALOGUE_TEXTS_MAX texts are. Takes the same work for every text of the form
 * of generated codes. Many at once are faster.
 */
void catalogue_find(const struct catalogue *catalogue, const struct code_text *texts, size_t n,
		    struct catalogue_found *found);

/* Appends a sentence for each key that is missing or another one. */
void catalogue_warnings(const struct catalogue *catalogue, cJSON *array);
