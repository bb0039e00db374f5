/*
 * The operation `redeem`: finds out which code a text is, and submits the request for its coupon to
 * admission, as an issue.
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
#include "gateway/read/lookup.h"

struct redeem;
struct catalogue;

struct redeem *redeem_new(const struct config *config, struct lookup *lookup,
			  struct admission *admission);

void redeem_submit(struct redeem *redeem, struct request *request); /* takes it */
void redeem_flush(struct redeem *redeem); /* decides what was submitted; once a turn of the loop */
/* Admission is about to answer it; a code that is revoked counts as a wrong one. */
void redeem_answered(const struct request *request, enum answer answer);
size_t redeem_waiting(const struct redeem *redeem); /* requests that wait for a look-up */

struct catalogue *redeem_catalogue(struct redeem *redeem);
void redeem_tick(struct redeem *redeem, int64_t now_ms);
void redeem_warnings(const struct redeem *redeem, cJSON *array);
