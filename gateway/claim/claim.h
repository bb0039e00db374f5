/*
 * The operation `claim`: finds out which code a text is, and submits the request for its coupon to
 * admission, as an issue. That of `code` goes to code.h instead.
 *
 *	catalogue ─▶ attempts ─┬─▶ generated code or word ─▶ admission
 *	                       ├─▶ perhaps imported ─▶ waits its turn ─▶ PostgreSQL ─▶ admission
 *	                       └─▶ wrong: code_invalid
 *
 * A wrong code is refused without Redis, and without PostgreSQL if no codes are imported. The
 * loop's thread only.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/admit/admission.h"
#include "gateway/claim/fair_queue.h"
#include "gateway/read/lookup.h"

struct claim;

/* All are lent. `reads` gets those of `code`. */
struct claim *claim_new(const struct config *config, struct lookup *lookup,
			struct admission *admission, struct fair_queue *reads);

void claim_submit(struct claim *claim, struct request *request); /* takes it */
void claim_flush(struct claim *claim); /* decides what was submitted; once a turn of the loop */
/* It is about to be answered; a code that is revoked counts as a wrong one. */
void claim_answered(const struct request *request, enum answer answer);
size_t claim_waiting(const struct claim *claim); /* requests that wait for a look-up */

/* To be called often. */
void claim_tick(struct claim *claim, int64_t now_ms);
/*
 * Has changes of codes looked for soon, not only when the next look is due. Returns the number of
 * that look.
 */
uint64_t claim_codes_renew(struct claim *claim);
/* Whether that look, or a later one, has ended: all that was changed before it is known. */
int claim_codes_has(const struct claim *claim, uint64_t look);
/* Appends a sentence for each key that is missing or another one. */
void claim_warnings(const struct claim *claim, cJSON *array);
