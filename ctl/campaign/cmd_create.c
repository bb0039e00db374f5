/*
 * couponctl create, edit and stock: the terms of a campaign as the command line gives them. A new
 * campaign is a draft, which clients cannot see. edit and stock change terms also while the
 * campaign issues: PostgreSQL gets the new terms, then Redis.
 *
 * A lower limit and a lower total are applied to Redis before the COMMIT, because Redis has the
 * taken slots, under the lock of the row in PostgreSQL. So Redis never issues more than PostgreSQL
 * accepts, wherever the command is interrupted, and repeating it completes the change.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "ctl/campaign/change.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/table.h"
#include "ctl/times.h"
#include "embed.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS_MAX 200
#define VALID_DAYS_MAX 36500
#define METADATA_BYTES_MAX 4096
#define TAGS_MAX 16
#define TELL_DAYS_MAX 365
#define TELL_LEAST_S 60
#define PAST_MS 60000 /* clocks differ */
#define NONE "none"   /* instead of a value: removes what the coupon has */
#define NOW "now"     /* instead of a time */

#define TERMS_OPTIONS                                                                              \
	OPTION("name", "NAME", "the name, 1 to 200 characters"),                                   \
		OPTION("limit", "N", "coupons for each user, 1 to 100; default for a new one: 1"), \
		OPTION_OR_NONE("begin", "T",                                                       \
			       "nothing is issued before this time; default: no begin"),           \
		OPTION_OR_NONE("end", "T",                                                         \
			       "nothing is issued from this time on, or after this day; "          \
			       "default: no end"),                                                 \
		OPTION("zone", "ZONE",                                                             \
		       "the campaign's time zone, as Europe/Berlin, in which T may be a day or a " \
		       "local time; default for a new one: COUPON_ZONE, or UTC"),                  \
		OPTION_OR_NONE("valid-days", "N",                                                  \
			       "a user's coupon is valid for N days of 24 hours from the "         \
			       "receive, 1 to 36500"),                                             \
		OPTION_OR_NONE("valid-from", "T", "a user's coupon is valid from this time"),      \
		OPTION_OR_NONE("valid-to", "T",                                                    \
			       "a user's coupon is valid until this time; default: from the "      \
			       "receive, without an end"),                                         \
		OPTION_OR_NONE("amount-off", ARGS_MONEY, "discount: an amount in --currency"),     \
		OPTION_OR_NONE("percent-off", "P", "discount: 0.01 to 100 percent"),               \
		OPTION("cap", ARGS_MONEY, "the most that --percent-off takes off"),                \
		OPTION("threshold", ARGS_MONEY,                                                    \
		       "the discount is for purchases of at least this amount"),                   \
		OPTION("currency", "CODE",                                                         \
		       "three capital letters as of ISO 4217, for example EUR"),                   \
		OPTION_OR_NONE("budget", "NAME",                                                   \
			       "the budget, in the same currency, that pays for the discount"),    \
		OPTION_OR_NONE("metadata", "JSON",                                                 \
			       "a JSON object of at most 4096 bytes, for other systems"),          \
		OPTION_WORDS("void-returns", "yes|no", WORDS("yes", "no"),                         \
			     "whether a voided receive gives back its stock and its user's slot; " \
			     "default yes"),                                                       \
		OPTION_WORDS("events", "on|off", WORDS("on", "off"),                               \
			     "whether events of the campaign and its receives are published; "     \
			     "default off"),                                                       \
		OPTION_OR_NONE("tell-before", "D",                                                 \
			       "how long before a user's coupon ends coupon.expiring is "          \
			       "published, as 3d, 12h or 30m: 1m to 365d; needs --events on; "     \
			       "default: it is not"),                                              \
		OPTION_OR_NONE("tags", "LIST",                                                     \
			       "words by which it is found, separated by commas: up to 16 of 1 "   \
			       "to 32 lower-case letters, digits, '.', '_' and '-'"),              \
		OPTION_WORDS("hidden", "yes|no", WORDS("yes", "no"),                               \
			     "whether offers leave it out, so that only who knows its id or a "    \
			     "code asks for it; default no")

static int is_word(const struct args *args, const char *name, const char *word)
{
	const char *value = args_text(args, name);

	return value && strcmp(value, word) == 0;
}

/* The times of a campaign, in ms; 0: none. */
struct times {
	int64_t begin_ms, end_ms, valid_from_ms, valid_to_ms;
};

static const struct time_option {
	const char *option, *column;
	enum time_edge edge;
	size_t offset; /* in struct times */
} time_options[] = {
	{ "begin", "begin_at", TIME_BEGIN, offsetof(struct times, begin_ms) },
	{ "end", "end_at", TIME_END, offsetof(struct times, end_ms) },
	{ "valid-from", "valid_from", TIME_BEGIN, offsetof(struct times, valid_from_ms) },
	{ "valid-to", "valid_to", TIME_END, offsetof(struct times, valid_to_ms) },
};
#define TIME_OPTIONS_N (sizeof(time_options) / sizeof(time_options[0]))

/* Refuses the end of `option` unless it is after that of the option `begin`; both are given. */
static void order_check(const struct args *args, const char *begin, int64_t begin_ms,
			const char *option, int64_t end_ms)
{
	if (args_has(args, begin) && args_has(args, option) && begin_ms && end_ms &&
	    begin_ms >= end_ms)
		args_fail("%s is \"%s\": allowed is a time after %s, \"%s\"", say_option(option),
			  args_text(args, option), say_option(begin), args_text(args, begin));
}

static int times_are_given(const struct args *args)
{
	for (size_t i = 0; i < TIME_OPTIONS_N; i++)
		if (args_has(args, time_options[i].option))
			return 1;
	return 0;
}

static int has_validity(const struct args *args)
{
	return args_has(args, "valid-days") || args_has(args, "valid-from") ||
	       args_has(args, "valid-to");
}

/* Sets the columns that have no value to null. */
static void columns_clear(cJSON *terms, const char *const *columns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!cJSON_HasObjectItem(terms, columns[i]))
			output_null(terms, columns[i]);
}

static void money_read(const struct args *args, cJSON *terms, const char *option,
		       const char *column)
{
	if (args_has(args, option))
		output_number(terms, column, args_money(args, option, args_currency(args), 1));
}

/* The options of the discount replace the whole discount of the coupon. */
static void discount_read(const struct args *args, cJSON *terms)
{
	static const char *const options[] = { "amount-off", "percent-off", "cap", "threshold",
					       "currency" },
				 *const columns[] = { "amount_off", "percent_off", "cap",
						      "threshold", "currency" };
	const size_t n = sizeof(options) / sizeof(options[0]);
	const char *percent = args_text(args, "percent-off");
	int is_given = 0;

	for (size_t i = 0; i < n; i++)
		is_given |= args_has(args, options[i]);
	if (!is_given)
		return;
	if (is_word(args, "amount-off", NONE) || is_word(args, "percent-off", NONE)) {
		columns_clear(terms, columns, n);
		return;
	}

	if (args_has(args, "amount-off") && percent)
		args_fail("--percent-off is \"%s\": not allowed together with --amount-off",
			  percent);
	if (args_has(args, "cap") && !percent)
		args_fail("--cap is \"%s\": allowed only together with --percent-off",
			  args_text(args, "cap"));
	if (!args_has(args, "currency") &&
	    (args_has(args, "amount-off") || args_has(args, "cap") || args_has(args, "threshold")))
		args_fail("--amount-off, --cap and --threshold need --currency");

	money_read(args, terms, "amount-off", "amount_off");
	if (percent) {
		size_t whole = strspn(percent, "0123456789");
		size_t digits = percent[whole] == '.' ? strspn(percent + whole + 1, "0123456789")
						      : 0;

		if (whole < 1 || whole > 3 || digits > 2 || (percent[whole] == '.' && digits < 1) ||
		    percent[whole + digits + (digits > 0)] || strtod(percent, NULL) <= 0 ||
		    strtod(percent, NULL) > 100)
			args_fail("--percent-off is \"%s\": allowed is 0.01 to 100, with at most "
				  "two digits after the point",
				  percent);
		output_text(terms, "percent_off", percent);
	}
	money_read(args, terms, "cap", "cap");
	money_read(args, terms, "threshold", "threshold");
	if (args_has(args, "currency"))
		output_text(terms, "currency", args_currency(args));
	columns_clear(terms, columns, n);
}

/* Whether no text in the value has control characters, not even escaped: other systems print it. */
static int texts_are_plain(const cJSON *value)
{
	const cJSON *member;

	if (value->string && !text_is_plain(value->string, strlen(value->string)))
		return 0;
	if (cJSON_IsString(value) && !text_is_plain(value->valuestring, strlen(value->valuestring)))
		return 0;
	cJSON_ArrayForEach(member, value)
	{
		if (!texts_are_plain(member))
			return 0;
	}
	return 1;
}

/* Whether a number in the JSON text has an exponent that PostgreSQL does not accept. */
static int has_wide_number(const char *text)
{
	int is_string = 0;

	for (; *text; text++) {
		if (is_string && *text == '\\')
			text++;
		else if (*text == '"')
			is_string = !is_string;
		else if (!is_string && strchr("eE", *text) && strchr("+-0123456789", text[1]) &&
			 labs(strtol(text + 1, NULL, 10)) > 300)
			return 1;
	}
	return 0;
}

static void metadata_read(const struct args *args, cJSON *terms)
{
	const char *text = args_text(args, "metadata"), *error;
	struct json_arena *arena;
	const cJSON *parsed;

	if (!text)
		return;
	if (is_word(args, "metadata", NONE)) {
		output_null(terms, "metadata");
		return;
	}
	if (strlen(text) > METADATA_BYTES_MAX)
		args_fail(
			"--metadata is \"%.100s…\", %zu bytes: allowed is a JSON object of at most "
			"%d bytes",
			text, strlen(text), METADATA_BYTES_MAX);
	arena = json_arena_new();
	json_decimals_allow(arena);
	parsed = json_parse(arena, text, strlen(text), &error);
	if (!cJSON_IsObject(parsed))
		args_fail("--metadata is \"%s\": allowed is a JSON object of at most %d bytes "
			  "(found: %s)",
			  text, METADATA_BYTES_MAX, parsed ? "another value" : error);
	if (!texts_are_plain(parsed))
		args_fail("--metadata is \"%s\": allowed are strings and member names without "
			  "control characters",
			  text);
	if (has_wide_number(text))
		args_fail("--metadata is \"%s\": allowed are numbers with an exponent from -300 to "
			  "300",
			  text);
	json_arena_free(arena);
	check(cJSON_AddRawToObject(terms, "metadata", text)); /* as it is, with all its digits */
}

static void tags_read(const struct args *args, cJSON *terms)
{
	const char *text = args_text(args, "tags");
	char *copy, *rest, *word;
	cJSON *tags;

	if (!text)
		return;
	tags = checked(cJSON_CreateArray());
	copy = rest = *text && !is_word(args, "tags", NONE) ? checked(strdup(text)) : NULL;
	while ((word = strsep(&rest, ",")) != NULL) {
		if (!*word || strlen(word) > TAG_MAX || strspn(word, TAG_BYTES) != strlen(word) ||
		    cJSON_GetArraySize(tags) == TAGS_MAX)
			args_fail("--tags is \"%s\": allowed are %d words of 1 to %d lower-case "
				  "letters, digits, '.', '_' and '-', separated by commas",
				  text, TAGS_MAX, TAG_MAX);
		cJSON_AddItemToArray(tags, checked(cJSON_CreateString(word)));
	}
	free(copy);
	output_add(terms, "tags", tags);
}

/* The first of two words means true. */
static void choice_read(const struct args *args, cJSON *terms, const char *option,
			const char *column)
{
	int choice = args_choice(args, option, -1);

	if (choice >= 0)
		output_bool(terms, column, choice == 0);
}

/*
 * The terms that are given, without the total and the times, as an object with columns of the table
 * coupon; cJSON_Delete() follows. An invalid term, also a time, ends the process.
 */
static cJSON *terms_read(const struct args *args)
{
	const char *name = args_text(args, "name"), *budget = args_text(args, "budget");
	cJSON *terms = output_object();
	size_t characters = 0;

	if (name) {
		for (const char *c = name; *c; c++)
			characters += (*c & 0xc0) != 0x80; /* the first byte of a character */
		if (characters < 1 || characters > NAME_CHARACTERS_MAX)
			args_fail("--name is \"%s\": allowed are 1 to %d characters", name,
				  NAME_CHARACTERS_MAX);
		output_text(terms, "name", name);
	}
	if (args_has(args, "limit"))
		output_number(terms, "user_limit",
			      args_number(args, "limit", 1, RECEIVE_SLOT_MAX, 0));

	for (size_t i = 0; i < TIME_OPTIONS_N; i++)
		time_check(args, time_options[i].option);
	/* The validity is a number of days or two dates. What is given replaces all of it. */
	if (!args_has(args, "valid-from") != !args_has(args, "valid-to"))
		args_fail("--valid-from and --valid-to must be given together");
	if (args_has(args, "valid-days") && !is_word(args, "valid-days", NONE)) {
		output_number(terms, "valid_days",
			      args_number(args, "valid-days", 1, VALID_DAYS_MAX, 0));
		if (args_has(args, "valid-from") && !is_word(args, "valid-from", NONE))
			args_fail("--valid-days is \"%s\": not allowed together with --valid-from "
				  "and --valid-to",
				  args_text(args, "valid-days"));
	}

	discount_read(args, terms);
	if (budget && !*budget)
		args_fail("--budget is \"\": allowed is the name of a budget, and none");
	if (budget)
		output_text(terms, "budget", is_word(args, "budget", NONE) ? NULL : budget);

	metadata_read(args, terms);
	choice_read(args, terms, "void-returns", "void_returns");
	choice_read(args, terms, "events", "events_on");
	if (is_word(args, "tell-before", NONE)) {
		output_null(terms, "tell_before");
	} else if (args_has(args, "tell-before")) {
		int64_t tell_s = args_duration_s(args, "tell-before", TELL_DAYS_MAX, 0);

		if (tell_s < TELL_LEAST_S)
			args_fail("--tell-before is \"%s\": allowed is a duration in s, m, h or d, "
				  "from 1m to %dd, and none",
				  args_text(args, "tell-before"), TELL_DAYS_MAX);
		output_number(terms, "tell_before", tell_s);
	}
	tags_read(args, terms);
	choice_read(args, terms, "hidden", "hidden");
	return terms;
}

/*
 * Adds the times that are given, and the zone, to the terms. `times` has those of before, or zeros.
 */
static void times_read(const struct args *args, struct db *db, const char *zone, cJSON *terms,
		       struct times *times)
{
	static const char *const columns[] = { "valid_days", "valid_from", "valid_to" };
	char text[CLOCK_RFC3339_SIZE];

	if (has_validity(args))
		times->valid_from_ms = times->valid_to_ms = 0;
	for (size_t i = 0; i < TIME_OPTIONS_N; i++) {
		const struct time_option *time = &time_options[i];
		int64_t *ms = (int64_t *)((char *)times + time->offset);

		*ms = time_read(args, time->option, time->edge, db, zone, *ms);
		if (args_has(args, time->option))
			output_text(terms, time->column, *ms ? clock_rfc3339(*ms, text) : NULL);
	}
	if (!times->valid_from_ms != !times->valid_to_ms && has_validity(args))
		args_fail("--valid-from and --valid-to must be given together");
	order_check(args, "begin", times->begin_ms, "end", times->end_ms);
	order_check(args, "valid-from", times->valid_from_ms, "valid-to", times->valid_to_ms);
	order_check(args, "begin", times->begin_ms, "valid-to", times->valid_to_ms);
	if (has_validity(args))
		columns_clear(terms, columns, sizeof(columns) / sizeof(columns[0]));
}

/* Terms with --tell-before that have no events, or no end that is further away, end the process. */
static void telling_check(struct db *db, int64_t id, const char *terms)
{
	PGresult *row = db_ask(db, sql_query_coupon_telling, db_id(id), postgres_text(terms));

	if (PQntuples(row) > 0) {
		if (!db_is_true(row, 0, "has_events"))
			log_fatal("%s needs %s on: end both together; nothing was changed",
				  say_option("tell-before"), say_option("events"));
		if (!db_is_true(row, 0, "has_end"))
			log_fatal("%s needs an end of the validity, %s or %s; nothing was changed",
				  say_option("tell-before"), say_option("valid-days"),
				  say_option("valid-to"));
		if (!db_is_true(row, 0, "fits"))
			log_fatal("%s must be shorter than %s, or nobody would be told; nothing "
				  "was changed",
				  say_option("tell-before"), say_option("valid-days"));
	}
	PQclear(row);
}

/*
 * Passes the terms of a coupon, which may be new, to a statement. Returns the value of the
 * statement. A budget that is unknown or has another currency ends the process, and so does
 * --tell-before that does not fit.
 */
static int64_t terms_store(struct db *db, const char *sql, int64_t id, int is_new, cJSON *terms)
{
	static const char *const telling[] = { "tell_before", "events_on", "valid_days",
					       "valid_to" };
	char *text = checked(json_write(terms));
	PGresult *row = db_ask(db, sql_query_coupon_budget, db_id(is_new ? 0 : id),
			       postgres_text(text));
	const char *budget = PQntuples(row) > 0 ? column_text(row, 0, "budget") : NULL, *currency;
	int64_t value;
	int is_telling = 0;

	for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
		is_telling |= cJSON_HasObjectItem(terms, telling[i]);
	if (is_telling)
		telling_check(db, is_new ? 0 : id, text);
	if (budget && !db_is_true(row, 0, "is_known"))
		log_fatal_as(CTL_ABSENT, "there is no budget %s", budget);
	if (budget && !db_is_true(row, 0, "fits")) {
		currency = column_text(row, 0, "currency");
		log_fatal("budget %s is in %s: a coupon that takes from it needs --amount-off or "
			  "--percent-off, and --currency %s; nothing was changed",
			  budget, currency, currency);
	}
	PQclear(row);
	value = db_value(db, sql, db_id(id), postgres_text(text));
	cJSON_free(text);
	cJSON_Delete(terms);
	return value;
}

/*
 * Refuses an end that is not after `least_ms`, by PostgreSQL's clock; `now` is this machine's. The
 * keeper would close the campaign within seconds, for ever; and nobody could use what is issued
 * after the end of the validity.
 */
static void future_check(const struct args *args, const char *option, int64_t end_ms,
			 int64_t least_ms, const char *allowed)
{
	char least[CLOCK_RFC3339_SIZE];

	if (end_ms && (end_ms <= least_ms || is_word(args, option, NOW)))
		args_fail("%s is \"%s\": allowed is %s; now it is %s; nothing was changed",
			  say_option(option), args_text(args, option), allowed,
			  clock_rfc3339(least_ms, least));
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	static const char *const local[] = { "begin", "end", "valid-from", "valid-to", NULL };
	struct times times = { 0 };
	char zone[ZONE_SIZE];
	cJSON *terms, *object;
	struct db *db;
	int64_t coupon, now_ms;

	args_required(args, "name");
	args_required(args, "total");
	terms = terms_read(args);
	output_number(terms, "total_num", args_number(args, "total", 1, JSON_INTEGER_MAX, 0));
	db = store_changing_open(ctl, NULL);
	object = store_key_begin(db, ctl);
	if (!object) {
		output_text(terms, "zone", zone_find(ctl, args_text(args, "zone"), db, zone));
		times_read(args, db, zone, terms, &times);
		now_ms = db_value(db, sql_query_clock);
		future_check(args, "end", times.end_ms, now_ms, "a time after now");
		future_check(args, "valid-to", times.valid_to_ms, now_ms, "a time after now");
		coupon = terms_store(db, sql_query_coupon_create, args_id(args, "id"), 1, terms);
		if (!coupon)
			log_fatal("--id is \"%s\": a coupon with this id exists",
				  args_text(args, "id"));
		object = output_object();
		output_id(object, "coupon", coupon);
		store_key_answer(db, ctl, object);
		db_run(db, "COMMIT");
	}
	db_close(db);
	if (!args_has(args, "zone"))
		zone_warn(ctl, local);
	output_made("coupon %s was created",
		    cJSON_GetStringValue(cJSON_GetObjectItem(object, "coupon")));
	output_say(object, "{coupon}\n", args_has(args, "json"));
	return 0;
}

static int edit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	cJSON *terms = terms_read(args);
	struct change change;
	int64_t limit, taken;
	struct terms lower;
	struct times times; /* as they would be after the edit */
	char zone[ZONE_SIZE];
	int status;

	args_required(args, "version");
	if (!terms->child && !times_are_given(args) && !has_validity(args) &&
	    !args_has(args, "zone"))
		args_fail("edit needs something to change%s", say_help("edit"));
	change_begin(&change, ctl);
	limit = args_number(args, "limit", 1, RECEIVE_SLOT_MAX, change.terms.limit);
	if (strcmp(change.status, "closed") == 0)
		log_fatal("coupon %lld is ended: its terms are final", (long long)change.coupon);

	snprintf(zone, sizeof(zone), "%s", change.zone);
	if (args_has(args, "zone"))
		output_text(terms, "zone",
			    zone_find(ctl, args_text(args, "zone"), change.db, zone));
	times = (struct times){ .begin_ms = change.terms.begin_ms,
				.end_ms = change.end_ms,
				.valid_to_ms = change.valid_to_ms };
	times_read(args, change.db, zone, terms, &times);
	/* A campaign that issues may be ended now. A draft that has ended is of no use. */
	if (times.end_ms != change.end_ms && strcmp(change.status, "draft") == 0)
		future_check(args, "end", times.end_ms, change.now_ms, "a time after now");
	else if (times.end_ms != change.end_ms && times.end_ms < change.now_ms - PAST_MS)
		future_check(args, "end", times.end_ms, change.now_ms,
			     "a time that is not past, or now");
	if (times.valid_to_ms != change.valid_to_ms)
		future_check(args, "valid-to", times.valid_to_ms, change.now_ms,
			     "a time after now");
	if (times.end_ms && times.end_ms <= times.begin_ms)
		log_fatal("coupon %lld would end before it begins: give both --begin and --end; "
			  "nothing was changed",
			  (long long)change.coupon);
	if (times.valid_to_ms && times.valid_to_ms <= times.begin_ms &&
	    (times.valid_to_ms != change.valid_to_ms || times.begin_ms != change.terms.begin_ms))
		log_fatal("the validity of coupon %lld would end before the campaign begins, and "
			  "nobody could use what is issued: give --begin, --valid-from and "
			  "--valid-to; nothing was changed",
			  (long long)change.coupon);

	if (terms_store(change.db, sql_query_coupon_edit, change.coupon, 0, terms)) {
		change_needed(&change);
		if (limit < change.terms.limit) {
			/* Before the COMMIT: Redis never accepts what PostgreSQL does not. */
			lower = change.terms;
			lower.limit = limit;
			taken = change.issued_num ? change.issued_num
						  : change_lower(&change, &lower);
			if (taken > 0)
				log_fatal("--limit is %lld: it may be lowered only while nothing "
					  "is taken, and %lld coupons are taken; nothing was "
					  "changed",
					  (long long)limit, (long long)taken);
			/* Redis is to get all the other terms as well. */
			change_version_raise(&change);
		}
	}
	status = change_commit(&change);
	change_say(
		&change,
		times_are_given(args) || args_has(args, "zone")
			? "coupon {coupon} has version {version}; it issues from "
			  "{local_begin|now on} until {local_end|the last one is taken} ({zone})\n"
			: "coupon {coupon} has version {version}\n");
	change_fini(&change);
	return status;
}

const struct command create_command = {
	.name = "create",
	.run = create_run,
	.options = OPTIONS(TERMS_OPTIONS, OPTION("total", "N", "number of coupons, at least 1"),
			   OPTION("id", "ID", "the id; default: the next free id"), KEY_OPTION,
			   BY_OPTION),
	.summary = "create a campaign as a draft, and print its id",
	.detail = "--name and --total are required. T is a day as 2026-12-24, a local time as\n"
		  "2026-12-24T18:00, a time with its offset as 2026-12-24T18:00:00+01:00, or the\n"
		  "word now. A day as an end is included. --end and --valid-to must be later than\n"
		  "now. If the validity ends before --end, the campaign ends with it. AMOUNT is\n"
		  "written with all digits of the currency after the point, or without a point:\n"
		  "7.00 EUR, 700 JPY.",
};

const struct command edit_command = {
	.name = "edit",
	.run = edit_run,
	.argument = "ID",
	.options = OPTIONS(TERMS_OPTIONS, CHANGE_OPTIONS),
	.summary = "change the terms of a campaign, also while it issues",
	.detail =
		"--version is required; couponctl show prints it. If another edit came in "
		"between,\n"
		"this one is refused with exit status 8. T is a time as in couponctl create. The\n"
		"word none removes a time, the validity, the discount (--amount-off none), the\n"
		"budget, --tell-before or the metadata. The validity and the discount are each\n"
		"replaced as a whole. Coupons that are issued already keep their validity. A\n"
		"validity that has ended, or would end before the campaign begins, is refused.\n"
		"The limit may be lowered only while nothing is taken. couponctl stock changes\n"
		"the total.",
};

/* ---- stock */

static void total_set(struct change *change, int64_t total)
{
	PGresult *result = db_ask(change->db, sql_query_coupon_total_set,
				  postgres_number(change->coupon), postgres_number(total));
	int64_t set = column_number(result, 0, "total_num"),
		issued = column_number(result, 0, "issued_num");

	PQclear(result);
	if (set != total)
		log_fatal("--total is %lld: allowed is at least the %lld that are issued",
			  (long long)total, (long long)issued);
}

static int stock_run(struct ctl *ctl)
{
	struct change change;
	struct terms lower;
	int64_t total;
	int status;

	args_required(&ctl->args, "total");
	total = args_number(&ctl->args, "total", 0, JSON_INTEGER_MAX, 0);
	change_begin(&change, ctl);
	if (total != change.terms.total)
		change_needed(&change);

	if (total > change.terms.total) {
		total_set(&change, total);
	} else if (total < change.terms.total) {
		/* Reserved stock counts as taken. */
		int64_t taken = change.loaded == 1 ? change.in_redis.total - change.in_redis.stock -
							     change.in_redis.lost
						   : 0;

		/* Redis may be behind PostgreSQL, for instance just after it lost its data. */
		if (total < change.issued_num && taken <= change.issued_num)
			log_fatal("--total is %lld: allowed is at least the %lld that are issued",
				  (long long)total, (long long)change.issued_num);
		lower = change.terms;
		lower.total = total;
		if (total >= taken) {
			total_set(&change, total);
			taken = change_lower(&change, &lower);
		}
		if (taken > total)
			log_fatal("--total is %lld: allowed is at least the %lld that are taken",
				  (long long)total, (long long)taken);
	}

	status = change_commit(&change);
	change_say(&change,
		   "coupon {coupon} has a total of {total}, of which {issued} are issued\n");
	change_fini(&change);
	return status;
}

const struct command stock_command = {
	.name = "stock",
	.run = stock_run,
	.argument = "ID",
	.options = OPTIONS(OPTION("total", "N",
				  "number of coupons, including the issued ones; at least the "
				  "number of taken slots"),
			   CHANGE_OPTIONS),
	.summary = "set the total of a campaign",
	.detail = "N is absolute, so repeating the command changes nothing.",
};
