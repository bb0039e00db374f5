/*
 * The read operation `offers`: a page of the campaigns that are open, or begin soon, and what a
 * user may have of each.
 *
 *	the catalogue ─▶ Redis, in one pipeline: states that are not fresh, the user's slots
 *	              ─▶ answered
 */
#pragma once

#include "gateway/read/catalogue.h"
#include "gateway/read/status.h"

/* Takes the request. Adds to parts->in_redis what Redis gets of it. */
void offers_answer(const struct status_parts *parts, struct catalogue *catalogue,
		   struct request *request);
