/*
 * Times as people write them, in options and files:
 *
 *	2026-12-24                     the whole day, in a time zone
 *	2026-12-24T18:00               a local time, in a time zone; also with seconds
 *	2026-12-24T18:00:00+01:00      an instant, by RFC 3339; the seconds may be omitted
 *
 * What a local time means is decided by PostgreSQL, which has the tables of the time zones.
 */
#pragma once

#include "ctl/args.h"
#include "ctl/database.h"

#define ZONE_SIZE 65       /* of a name of the IANA database, with its NUL */
#define ZONE_DEFAULT "UTC" /* without COUPON_ZONE */

enum time_form { TIME_INVALID, TIME_INSTANT, TIME_LOCAL, TIME_DAY };

/*
 * The form of the text. `*ms`: since 1970-01-01T00:00:00, in UTC, or as clocks of the zone show it.
 */
enum time_form time_form(const char *text, int64_t *ms);
#define TIME_ALLOWED                                                                           \
	"a day as 2026-12-24, a local time as 2026-12-24T18:00, or a time with its offset as " \
	"2026-12-24T18:00:00+01:00 or 2026-12-24T17:00:00Z, after 1970 and up to 9999-12-31"

/* What a day stands for: its first moment, or the first one after it. */
enum time_edge { TIME_BEGIN, TIME_END };

/*
 * Ends the process unless the option, if it is given, is a time, the word now, or, if the option
 * takes it, the word none. Needs no database.
 */
void time_check(const struct args *args, const char *option);
/*
 * The time of the option, in ms since the epoch: `fallback_ms` if it is not given, 0 for none. Ends
 * the process if clocks of the zone do not show this local time, or show it twice.
 */
int64_t time_read(const struct args *args, const char *option, enum time_edge edge, struct db *db,
		  const char *zone, int64_t fallback_ms);
#define TIME_WHY_SIZE 256
/* As time_read(), of a text in a file. 0, or -1 and what is allowed instead. */
int time_of_text(const char *text, enum time_edge edge, struct db *db, const char *zone,
		 int64_t *ms, char why[TIME_WHY_SIZE]);
/* The time of an option as an argument of a statement, in ms; SQL's NULL: it is not given. */
struct postgres_argument time_argument(const struct args *args, const char *option,
				       enum time_edge edge, struct db *db, const char *zone);

/*
 * The time zone of local times: `given`, the value of --zone; if that is NULL, COUPON_ZONE, else
 * UTC. As the IANA database spells it; returns `out`. Ends the process if PostgreSQL does not know
 * the zone.
 */
const char *zone_find(const struct ctl *ctl, const char *given, struct db *db, char out[ZONE_SIZE]);
/* Warns for each option, the last one is NULL, whose local time is read in UTC by default. */
void zone_warn(const struct ctl *ctl, const char *const *options);
