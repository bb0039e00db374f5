/* What a rush has found, as JSON or for people. */
#pragma once

#include "rush/open_loop.h"
#include "rush/verify.h"

#include <cjson/cJSON.h>

struct rush_report {
	const struct rush_requests *requests;
	const struct rush_figures *figures;
	const struct rush_crowd *crowd;   /* NULL: the loop was closed */
	const struct rush_verify *verify; /* NULL: with --no-verify */
	const struct rush_calm *calm;     /* NULL: of a closed loop, or with --no-verify */
	int64_t ping_us;                  /* as rush_open_loop_calm() */
	int passed;
};

cJSON *rush_report_json(const struct rush_report *report);
/* By its JSON, which it frees. */
void rush_report_print(const struct rush_report *report, cJSON *object);
