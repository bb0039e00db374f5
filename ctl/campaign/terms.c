#include "ctl/campaign/terms.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/message/receive.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS_MAX 200
#define VALID_DAYS_MAX 36500
#define NONE "none" /* instead of a value: removes what the coupon has */
#define NOW "now"   /* instead of a time */

static int is_word(const struct args *args, const char *name, const char *word)
{
	const char *value = args_text(args, name);

	return value && strcmp(value, word) == 0;
}

static size_t utf8_characters(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

static void name_read(const struct args *args, cJSON *terms)
{
	const char *name = args_text(args, "name");

	if (!name)
		return;
	if (!*name || utf8_characters(name) > NAME_CHARACTERS_MAX)
		args_fail("--name is \"%s\": allowed are 1 to %d characters", name,
			  NAME_CHARACTERS_MAX);
	output_text(terms, "name", name);
}

static void number_read(const struct args *args, cJSON *terms, const char *option,
			const char *column, int64_t least, int64_t most)
{
	if (args_has(args, option))
		output_number(terms, column, args_number(args, option, least, most, 0));
}

/* The time, or `fallback_ms` when none is given. */
static int64_t time_given(const struct args *args, const char *option, int64_t fallback_ms)
{
	if (is_word(args, option, NONE))
		return 0;
	return is_word(args, option, NOW) ? clock_wall_ms() : args_time(args, option, fallback_ms);
}

static int64_t time_read(const struct args *args, cJSON *terms, const char *option,
			 const char *column)
{
	int64_t wall_ms = time_given(args, option, 0);
	char text[CLOCK_RFC3339_SIZE];

	if (args_has(args, option))
		output_text(terms, column, wall_ms ? clock_rfc3339(wall_ms, text) : NULL);
	return wall_ms;
}

void terms_window(const struct args *args, int64_t *begin_ms, int64_t *end_ms)
{
	*begin_ms = time_given(args, "begin", *begin_ms);
	*end_ms = time_given(args, "end", *end_ms);
}

static void window_read(const struct args *args, cJSON *terms)
{
	int64_t begin_ms = time_read(args, terms, "begin", "begin_at"),
		end_ms = time_read(args, terms, "end", "end_at");

	if (begin_ms && end_ms && begin_ms >= end_ms)
		args_fail("--end is \"%s\": allowed is a time after --begin, \"%s\"",
			  args_text(args, "end"), args_text(args, "begin"));
}

static void columns_clear(cJSON *terms, const char *const *columns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!cJSON_HasObjectItem(terms, columns[i]))
			output_null(terms, columns[i]);
}

/* Days, or two dates: what is given replaces the others. */
static void validity_read(const struct args *args, cJSON *terms)
{
	static const char *const columns[] = { "valid_days", "valid_from", "valid_to" };
	int is_given = args_has(args, "valid-days") || args_has(args, "valid-from") ||
		       args_has(args, "valid-to");
	int64_t from_ms, to_ms;

	if (!is_given)
		return;
	if (!is_word(args, "valid-days", NONE))
		number_read(args, terms, "valid-days", "valid_days", 1, VALID_DAYS_MAX);
	from_ms = time_read(args, terms, "valid-from", "valid_from");
	to_ms = time_read(args, terms, "valid-to", "valid_to");
	if (!from_ms != !to_ms)
		args_fail("--valid-from and --valid-to must be given together");
	if (from_ms && from_ms >= to_ms)
		args_fail("--valid-to is \"%s\": allowed is a time after --valid-from, \"%s\"",
			  args_text(args, "valid-to"), args_text(args, "valid-from"));
	if (from_ms && cJSON_HasObjectItem(terms, "valid_days"))
		args_fail("--valid-days is \"%s\": not allowed together with --valid-from and "
			  "--valid-to",
			  args_text(args, "valid-days"));
	columns_clear(terms, columns, sizeof(columns) / sizeof(columns[0]));
}

/* Percent with at most two digits after the point. */
static void percent_read(const struct args *args, cJSON *terms)
{
	const char *text = args_text(args, "percent-off");
	size_t whole, digits;

	if (!text)
		return;
	whole = strspn(text, "0123456789");
	digits = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
	if (whole < 1 || whole > 3 || digits > 2 || (text[whole] == '.' && digits < 1) ||
	    text[whole + digits + (digits > 0)] || strtod(text, NULL) <= 0 ||
	    strtod(text, NULL) > 100)
		args_fail("--percent-off is \"%s\": allowed is 0.01 to 100, with at most two "
			  "digits after the point",
			  text);
	output_text(terms, "percent_off", text);
}

static void currency_read(const struct args *args, cJSON *terms)
{
	const char *text = args_text(args, "currency");

	if (!text)
		return;
	if (strlen(text) != 3 || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 3)
		args_fail("--currency is \"%s\": allowed are three capital letters as of ISO 4217, "
			  "for example EUR",
			  text);
	output_text(terms, "currency", text);
}

static void discount_check(const struct args *args)
{
	if (args_has(args, "amount-off") && args_has(args, "percent-off"))
		args_fail("--percent-off is \"%s\": not allowed together with --amount-off",
			  args_text(args, "percent-off"));
	if (args_has(args, "cap") && !args_has(args, "percent-off"))
		args_fail("--cap is \"%s\": allowed only together with --percent-off",
			  args_text(args, "cap"));
	if (!args_has(args, "currency") &&
	    (args_has(args, "amount-off") || args_has(args, "cap") || args_has(args, "threshold")))
		args_fail("--amount-off, --cap and --threshold need --currency");
}

/* What is given is the whole discount: it replaces the one that the coupon has. */
static void discount_read(const struct args *args, cJSON *terms)
{
	static const char *const options[] = { "amount-off", "percent-off", "cap", "threshold",
					       "currency" },
				 *const columns[] = { "amount_off", "percent_off", "cap",
						      "threshold", "currency" };
	const size_t n = sizeof(options) / sizeof(options[0]);
	int is_given = 0;

	for (size_t i = 0; i < n; i++)
		is_given |= args_has(args, options[i]);
	if (!is_given)
		return;
	if (!is_word(args, "amount-off", NONE) && !is_word(args, "percent-off", NONE)) {
		discount_check(args);
		number_read(args, terms, "amount-off", "amount_off", 1, JSON_INTEGER_MAX);
		percent_read(args, terms);
		number_read(args, terms, "cap", "cap", 1, JSON_INTEGER_MAX);
		number_read(args, terms, "threshold", "threshold", 1, JSON_INTEGER_MAX);
		currency_read(args, terms);
	}
	columns_clear(terms, columns, n);
}

static void metadata_read(const struct args *args, cJSON *terms)
{
	const char *text = args_text(args, "metadata");
	cJSON *parsed;

	if (!text)
		return;
	if (is_word(args, "metadata", NONE)) {
		output_null(terms, "metadata");
		return;
	}
	parsed = cJSON_ParseWithOpts(text, NULL, 1);
	if (!cJSON_IsObject(parsed) || strlen(text) > TERMS_METADATA_BYTES)
		args_fail("--metadata is \"%s\": allowed is a JSON object of at most %d bytes",
			  text, TERMS_METADATA_BYTES);
	cJSON_Delete(parsed);
	check(cJSON_AddRawToObject(terms, "metadata", text)); /* as it is, with all its digits */
}

/* One of two words. */
static void choice_read(const struct args *args, cJSON *terms, const char *option,
			const char *column, const char *const words[2])
{
	const char *text = args_text(args, option);

	if (!text)
		return;
	if (strcmp(text, words[0]) != 0 && strcmp(text, words[1]) != 0)
		args_fail("--%s is \"%s\": allowed are %s and %s", option, text, words[0],
			  words[1]);
	output_bool(terms, column, strcmp(text, words[0]) == 0);
}

cJSON *terms_read(const struct args *args)
{
	cJSON *terms = output_object();

	name_read(args, terms);
	number_read(args, terms, "limit", "user_limit", 1, RECEIVE_SLOT_MAX);
	window_read(args, terms);
	validity_read(args, terms);
	discount_read(args, terms);
	metadata_read(args, terms);
	choice_read(args, terms, "void-returns", "void_returns",
		    (const char *const[]){ "yes", "no" });
	choice_read(args, terms, "events", "events_on", (const char *const[]){ "on", "off" });
	return terms;
}
