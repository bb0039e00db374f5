/* The result of a rush, for people and as JSON. */
#ifndef CTL_RUSH_REPORT_H
#define CTL_RUSH_REPORT_H

#include "ctl/rush/load.h"
#include "ctl/rush/verify.h"

struct rush_report {
	const struct rush_plan *plan;
	const struct rush_book *book;
	const struct rush_figures *figures;
	const struct rush_verify *verify; /* NULL: with --no-verify */
	int passed;
};

void rush_report_text(const struct rush_report *report);
void rush_report_json(const struct rush_report *report);

#endif
