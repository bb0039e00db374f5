#include "ctl/times.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/ctl.h"
#include "ctl/say.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define DAY_MS 86400000
#define NONE "none" /* instead of a time: there is none */
#define NOW "now"   /* instead of a time: this moment */

enum time_form time_form(const char *text, int64_t *ms)
{
	const size_t day = strlen("2026-12-24"), minute = strlen("2026-12-24T18:00"),
		     len = strlen(text);
	/* Without the offset. */
	size_t local = len <= day ? len : day + 1 + strcspn(text + day + 1, "Zz+-");
	char whole[2 * CLOCK_RFC3339_SIZE];

	snprintf(whole, sizeof(whole), "%.*s%s%s", (int)local, text,
		 local == day      ? "T00:00:00"
		 : local == minute ? ":00"
				   : "",
		 text[local] ? text + local : "Z");
	if (len >= CLOCK_RFC3339_SIZE || rfc3339_parse(whole, ms))
		return TIME_INVALID;
	return text[local] ? TIME_INSTANT : local == day ? TIME_DAY : TIME_LOCAL;
}

void time_check(const struct args *args, const char *option)
{
	const char *text = args_text(args, option);
	enum time_form form;
	int64_t ms;

	if (!text || strcmp(text, NOW) == 0 ||
	    (strcmp(text, NONE) == 0 && args_takes_none(args, option)))
		return;
	form = time_form(text, &ms);
	if (form == TIME_INVALID || (form == TIME_INSTANT && ms <= 0))
		args_fail("%s is \"%s\": allowed is " TIME_ALLOWED, say_option(option), text);
}

/*
 * The instant at which clocks of the zone show this local time, if it is one. A day begins with its
 * first moment: where clocks are set forward at midnight, the one at which they are.
 */
static int local_read(enum time_form form, struct db *db, const char *zone, int64_t *ms,
		      char why[TIME_WHY_SIZE])
{
	PGresult *readings = db_ask(db, sql_query_time_readings, postgres_number(*ms),
				    postgres_text(zone));
	int n = PQntuples(readings), is_shown = db_is_true(readings, 0, "is_shown"),
	    row = form == TIME_DAY && !is_shown ? n - 1 : 0, is_one = form == TIME_DAY || n == 1;

	*ms = column_number(readings, row, "ms");
	if (!is_one)
		snprintf(why, TIME_WHY_SIZE, "in %s clocks %s; write %s or %s", zone,
			 is_shown ? "show this time twice, because they are set back"
				  : "never show this time, because they are set forward",
			 column_text(readings, 0, "text"), column_text(readings, 1, "text"));
	PQclear(readings);
	return is_one ? 0 : -1;
}

int time_of_text(const char *text, enum time_edge edge, struct db *db, const char *zone,
		 int64_t *ms, char why[TIME_WHY_SIZE])
{
	enum time_form form = time_form(text, ms);

	strcpy(why, "allowed is " TIME_ALLOWED);
	if (form == TIME_INVALID)
		return -1;
	if (form == TIME_DAY && edge == TIME_END)
		*ms += DAY_MS;
	if (form != TIME_INSTANT && local_read(form, db, zone, ms, why))
		return -1;
	return *ms > 0 && *ms <= RFC3339_LAST_MS ? 0 : -1;
}

int64_t time_read(const struct args *args, const char *option, enum time_edge edge, struct db *db,
		  const char *zone, int64_t fallback_ms)
{
	const char *text = args_text(args, option);
	char why[TIME_WHY_SIZE];
	int64_t ms;

	time_check(args, option);
	if (!text)
		return fallback_ms;
	if (strcmp(text, NONE) == 0)
		return 0;
	if (strcmp(text, NOW) == 0)
		return clock_wall_ms();
	if (time_of_text(text, edge, db, zone, &ms, why))
		args_fail("%s is \"%s\": %s", say_option(option), text, why);
	return ms;
}

struct postgres_argument time_argument(const struct args *args, const char *option,
				       enum time_edge edge, struct db *db, const char *zone)
{
	return args_has(args, option) ? postgres_number(time_read(args, option, edge, db, zone, 0))
				      : postgres_text(NULL);
}

const char *zone_find(const struct ctl *ctl, const char *given, struct db *db, char out[ZONE_SIZE])
{
	const char *name = given ? given : *ctl->config.zone ? ctl->config.zone : ZONE_DEFAULT;
	PGresult *found;

	snprintf(out, ZONE_SIZE, "%s", ZONE_DEFAULT);
	if (strcmp(name, ZONE_DEFAULT) == 0)
		return out;
	found = db_ask(db, sql_query_time_zone, postgres_text(name));
	if (db_is_null(found, 0, "name"))
		args_fail("%s is \"%s\": allowed is the name of a time zone in the IANA database, "
			  "for example %s",
			  given ? say_option("zone") : "COUPON_ZONE", name,
			  db_is_null(found, 0, "near") ? "Europe/Berlin"
						       : column_text(found, 0, "near"));
	snprintf(out, ZONE_SIZE, "%s", column_text(found, 0, "name"));
	PQclear(found);
	return out;
}

void zone_warn(const struct ctl *ctl, const char *const *options)
{
	enum time_form form;
	const char *text;
	int64_t ms;

	for (; !*ctl->config.zone && *options; options++) {
		text = args_text(&ctl->args, *options);
		form = text ? time_form(text, &ms) : TIME_INVALID;
		if (form == TIME_LOCAL || form == TIME_DAY)
			say_warning("%s is read in UTC, because no time zone is set: see "
				    "COUPON_ZONE",
				    say_option(*options));
	}
}
