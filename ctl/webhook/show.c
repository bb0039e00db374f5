/* couponctl webhook show: one webhook, its queue, and the fingerprints of its secrets. */
#include "common/check.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "ctl/webhook/hook_json.h"
#include "events/signature.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static const char *fingerprint(const PGresult *secrets, int row, char out[SECRET_FINGERPRINT_SIZE])
{
	const char *text = db_text(secrets, row, "secret");
	struct secret secret;

	if (secret_parse(&secret, text, strlen(text)))
		return "unreadable";
	secret_fingerprint(&secret, out);
	OPENSSL_cleanse(&secret, sizeof(secret));
	return out;
}

static cJSON *secrets_json(const PGresult *secrets)
{
	cJSON *list = cJSON_CreateArray();

	check(list != NULL);
	for (int row = 0; row < PQntuples(secrets); row++) {
		char digits[SECRET_FINGERPRINT_SIZE];
		cJSON *object = output_object();

		output_text(object, "fingerprint", fingerprint(secrets, row, digits));
		output_text(object, "created_by", db_text(secrets, row, "created_by"));
		output_text(object, "created_at", db_text(secrets, row, "created_at"));
		output_text(object, "expires_at", db_text(secrets, row, "expires_at"));
		cJSON_AddItemToArray(list, object);
	}
	return list;
}

/* "name  value", unless there is none. */
static void line_print(const char *name, const PGresult *hook, const char *column)
{
	if (!db_is_null(hook, 0, column))
		printf("  %-14s %s\n", name, db_text(hook, 0, column));
}

static void hook_print(const PGresult *hook)
{
	const char *coupon = db_text(hook, 0, "coupon_id"), *types = db_text(hook, 0, "types");

	printf("webhook %s to %s\n", db_text(hook, 0, "id"), db_text(hook, 0, "url"));
	printf("  %-14s %s\n", "coupon", *coupon ? coupon : "every");
	printf("  %-14s %s\n", "types", *types ? types : "all");
	printf("  %-14s %s since %s, by %s\n", "state", db_text(hook, 0, "state"),
	       db_text(hook, 0, "state_at"), db_text(hook, 0, "state_by"));
	line_print("why", hook, "state_why");
	printf("  %-14s %s requests wait, %s are given up; at most %s of %s events each\n", "queue",
	       db_text(hook, 0, "waiting_num"), db_text(hook, 0, "failed_num"),
	       db_text(hook, 0, "queue_max"), db_text(hook, 0, "batch_max"));
	printf("  %-14s %s events\n", "delivered", db_text(hook, 0, "delivered_num"));
	line_print("delivered at", hook, "delivered_at");
	line_print("failing since", hook, "failing_since");
	line_print("paused until", hook, "pause_until");
	if (db_int(hook, 0, "dropped_num") > 0)
		printf("  %-14s %s events, the last at %s\n", "dropped",
		       db_text(hook, 0, "dropped_num"), db_text(hook, 0, "dropped_at"));
	printf("  %-14s %s, by %s\n", "created", db_text(hook, 0, "created_at"),
	       db_text(hook, 0, "created_by"));
}

static void secrets_print(const PGresult *secrets)
{
	for (int row = 0; row < PQntuples(secrets); row++) {
		const char *expires = db_text(secrets, row, "expires_at");
		char digits[SECRET_FINGERPRINT_SIZE];

		printf("  %-14s fingerprint %s of %s%s%s\n", "secret",
		       fingerprint(secrets, row, digits), db_text(secrets, row, "created_at"),
		       *expires ? ", valid until " : "", expires);
	}
}

static int show_run(struct ctl *ctl)
{
	int64_t webhook = args_argument_id(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	PGresult *hook = hook_row(db, webhook), *secrets = hook_secrets(db, webhook);

	if (args_has(&ctl->args, "json")) {
		cJSON *object = hook_json(hook, 0);

		output_add(object, "secrets", secrets_json(secrets));
		output_print(object);
	} else {
		hook_print(hook);
		secrets_print(secrets);
	}
	PQclear(secrets);
	PQclear(hook);
	db_close(db);
	return 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command webhook_show_command = {
	.name = "webhook show",
	.run = show_run,
	.argument = "ID",
	.options = show_options,
	.summary = "show a webhook, its queue, and the fingerprints of its secrets",
};
