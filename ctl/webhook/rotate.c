/* couponctl webhook rotate: a new secret, beside the old ones for a while. */
#include "common/log/log.h"
#include "ctl/by.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "ctl/webhook/new_secret.h"
#include "events/signature.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S 86400
#define OVERLAP_S_MAX (30 * DAY_S)

/* "24h" in seconds; -1: it is no duration. */
static int64_t duration_parse(const char *text)
{
	static const struct {
		const char *unit;
		int64_t seconds;
	} units[] = { { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", DAY_S } };
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (errno || end == text || *text < '0' || *text > '9' || number > OVERLAP_S_MAX)
		return -1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0)
			return number * units[i].seconds;
	return -1;
}

static int64_t overlap_read(const struct args *args)
{
	const char *text = args_text(args, "overlap");
	int64_t seconds = text ? duration_parse(text) : DAY_S;

	if (seconds < 0 || seconds > OVERLAP_S_MAX)
		args_fail("--overlap is \"%s\": allowed is a number of s, m, h or d from 0s to 30d",
			  text);
	return seconds;
}

static int rotate_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args), overlap_s = overlap_read(&ctl->args);
	struct new_secret secret;
	struct db *db;

	new_secret_get(&secret, &ctl->args);
	db = store_changing_open(ctl);
	PQclear(hook_row(db, webhook));
	if (new_secret_store(db, webhook, &secret, overlap_s))
		log_fatal("webhook %lld has %d valid secrets, and no more are allowed: wait until "
			  "one expires, or use --overlap 0s",
			  (long long)webhook, SIGNATURES_MAX);
	db_close(db);
	new_secret_print(webhook, &secret, args_has(&ctl->args, "json"));
	return 0;
}

static const struct option rotate_options[] = {
	OPTION("overlap", "TIME",
	       "for how long the secrets before stay valid: 90s, 30m, 24h, 7d; up to 30d;\n"
	       "      default 24h"),
	SECRET_FILE_OPTION,
	SWITCH("json", "print {\"webhook\":\"ID\",\"secret\":\"SECRET\"}"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command webhook_rotate_command = {
	.name = "webhook rotate",
	.run = rotate_run,
	.argument = "ID",
	.options = rotate_options,
	.summary = "give a webhook a new secret",
	.detail = "Prints the new secret; it is not printed again. Until the overlap ends every\n"
		  "request has a signature with each secret.",
};
