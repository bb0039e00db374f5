/*
 * couponctl webhook: create, edit, rotate, remove and show --resend change something; list, show
 * and show --deliveries only read; test sends one event.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"
#include "events/endpoint.h"
#include "events/event.h"
#include "events/post.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_DEFAULT 100
#define QUEUE_DEFAULT 10000
#define DELIVERIES_COUNT 20
#define TYPES_SIZE 256
#define OVERLAP_S 86400
#define OVERLAP_DAYS_MAX 30
#define WHY_BYTES_MAX 500
#define TYPE "webhook.test"

static const char *const event_types[] = {
#define EVENT(name, text) text,
#include "common/message/event_table.h"
#undef EVENT
	NULL
};

static _Noreturn void hook_absent(int64_t id)
{
	log_fatal_as(CTL_ABSENT, "there is no webhook %lld", (long long)id);
}

/* The row of sql_query_webhook_list; one that is absent ends the process. */
static PGresult *hook_row(struct db *db, int64_t id)
{
	PGresult *row = db_ask(db, sql_query_webhook_list, postgres_number(id), postgres_number(0),
			       postgres_text(NULL));

	if (PQntuples(row) == 0)
		hook_absent(id);
	return row;
}

/*
 * The webhook, if it is there and may be changed: with --of-campaign, which coupon-admin gives for
 * those who only run campaigns, it must be that of one campaign. Else the process ends.
 */
static PGresult *hook_row_changing(struct db *db, const struct args *args, int64_t id)
{
	PGresult *row = hook_row(db, id);

	if (args_has(args, "of-campaign") && !*column_text(row, 0, "coupon"))
		log_fatal("webhook %lld gets the events of every campaign: this needs the role "
			  "admin",
			  (long long)id);
	return row;
}

/*
 * Reads the secret of --secret-file, or makes one. Returns whether it was made: then it is printed.
 */
static int secret_get(char text[SECRET_TEXT_SIZE], const struct args *args)
{
	const char *path = args_text(args, "secret-file");
	char line[SECRET_TEXT_SIZE + 2];
	struct secret secret;
	FILE *file;

	if (!path) {
		secret_make(text);
		return 1;
	}
	file = fopen(path, "re");
	if (!file)
		args_fail("--secret-file is \"%s\": the file cannot be read: %s", path,
			  strerror(errno));
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\r\n")] = '\0';
	if (secret_parse(&secret, line, strlen(line)))
		args_fail("--secret-file is \"%s\": its first line is no secret; allowed "
			  "is " SECRET_PREFIX " and %d to %d bytes in base64",
			  path, SECRET_BYTES_LEAST, SECRET_BYTES_MOST);
	snprintf(text, SECRET_TEXT_SIZE, "%.*s", SECRET_TEXT_SIZE - 1, line);
	return 0;
}

static cJSON *secret_object(int64_t webhook, const char *secret)
{
	cJSON *object = output_object();

	output_id(object, "webhook", webhook);
	output_text(object, "secret", secret);
	return object;
}

/*
 * Begins a transaction and takes --key in it. Returns whether the command was done before: then the
 * former result is printed by the template, without a secret.
 */
static int done_before(struct db *db, const struct ctl *ctl, const char *template)
{
	cJSON *before = store_key_begin(db, ctl);

	if (!before)
		return 0;
	if (cJSON_HasObjectItem(before, "secret") && !args_has(&ctl->args, "secret-file"))
		say_warning("the secret was printed before, and is not printed "
			    "again: couponctl webhook rotate makes another one");
	if (template)
		output_say(before, template, args_has(&ctl->args, "json"));
	else
		cJSON_Delete(before);
	return 1;
}

#define SECRET_TEMPLATE "webhook {webhook}\n[secret secret {secret}\n]"

/* Prints the webhook and its new secret; NULL: the secret is that of --secret-file. */
static void secret_say(int64_t webhook, const char *secret, const struct args *args)
{
	cJSON *object = secret_object(webhook, secret);

	output_made(secret ? "webhook %lld has a new secret, which nobody knows: couponctl webhook "
			     "rotate makes another one"
			   : "webhook %lld has the secret of --secret-file",
		    (long long)webhook);
	output_say(object, SECRET_TEMPLATE, args_has(args, "json"));
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_id(args, "coupon"), webhook,
		batch = args_number(args, "batch", 1, 1000, BATCH_DEFAULT),
		queue = args_number(args, "queue", 1, 1000000, QUEUE_DEFAULT);
	const char *given = args_text(args, "types");
	char *copy = checked(strdup(given ? given : "")), *rest = given ? copy : NULL, *word;
	char types[TYPES_SIZE], allowed[TYPES_SIZE] = "", secret[SECRET_TEXT_SIZE];
	char why[URL_WHY_SIZE];
	int seen[EVENT_TYPES] = { 0 }, is_new;
	enum event_type type;
	struct rules rules;
	struct db *db;
	size_t n = 0;

	if (args_has(args, "of-campaign") && !coupon)
		args_fail("--coupon is missing: a webhook for every campaign needs the role admin");
	rules_read(&rules, &ctl->config);
	if (url_check(args->argument, &rules, why))
		args_fail("URL is \"%s\": %s", args->argument, why);
	for (int i = 0; i < EVENT_TYPES; i++)
		n += (size_t)snprintf(allowed + n, sizeof(allowed) - n, "%s%s", i ? ", " : "",
				      event_types[i]);
	while ((word = strsep(&rest, ",")) != NULL)
		if (event_type_parse(word, &type) || seen[type]++)
			args_fail("--types is \"%s\": allowed are %s, each once, separated by "
				  "commas",
				  given, allowed);
	free(copy);
	check(snprintf(types, TYPES_SIZE, "{%s}", given ? given : "") < TYPES_SIZE);
	is_new = secret_get(secret, args);
	db = store_changing_open(ctl, NULL);
	if (coupon)
		PQclear(store_coupon_row(db, sql_query_coupon_show, coupon));
	if (done_before(db, ctl, SECRET_TEMPLATE)) {
		db_close(db);
		return 0;
	}
	webhook = db_value(db, sql_query_webhook_add, postgres_text(args->argument), db_id(coupon),
			   postgres_text(types), postgres_number(batch), postgres_number(queue));
	if (!webhook)
		log_fatal("there are already 1,000 webhooks, the maximum");
	check(db_value(db, sql_query_webhook_secret_add, postgres_number(webhook),
		       postgres_text(secret), postgres_number(0)) != 0);
	store_key_commit(db, ctl, secret_object(webhook, NULL));
	db_close(db);
	secret_say(webhook, is_new ? secret : NULL, args);
	return 0;
}

static int rotate_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args),
		overlap_s = args_duration_s(&ctl->args, "overlap", OVERLAP_DAYS_MAX, OVERLAP_S);
	char secret[SECRET_TEXT_SIZE];
	int is_new = secret_get(secret, &ctl->args);
	struct db *db = store_changing_open(ctl, NULL);

	PQclear(hook_row_changing(db, &ctl->args, webhook));
	if (done_before(db, ctl, SECRET_TEMPLATE)) {
		db_close(db);
		return 0;
	}
	if (!db_value(db, sql_query_webhook_secret_add, postgres_number(webhook),
		      postgres_text(secret), postgres_number(overlap_s)))
		log_fatal("webhook %lld has %d valid secrets, and no more are allowed: wait until "
			  "one expires, or use --overlap 0s",
			  (long long)webhook, SIGNATURES_MAX);
	store_key_commit(db, ctl, secret_object(webhook, NULL));
	db_close(db);
	secret_say(webhook, is_new ? secret : NULL, &ctl->args);
	return 0;
}

/* The webhook, with the fingerprints of its valid secrets; one that is absent ends the process. */
static cJSON *hook_json(struct db *db, int64_t webhook)
{
	PGresult *hook = hook_row(db, webhook),
		 *rows = db_ask(db, sql_query_webhook_secrets, postgres_number(webhook));
	cJSON *object = output_object(), *list = checked(cJSON_CreateArray());

	output_row(object, hook, 0);
	PQclear(hook);
	for (int row = 0; row < PQntuples(rows); row++) {
		const char *text = column_text(rows, row, "secret");
		char digits[SECRET_FINGERPRINT_SIZE] = "unreadable";
		cJSON *one = output_object();
		struct secret secret;

		if (secret_parse(&secret, text, strlen(text)) == 0)
			secret_fingerprint(&secret, digits);
		OPENSSL_cleanse(&secret, sizeof(secret));
		output_text(one, "fingerprint", digits);
		output_row(one, rows, row);
		cJSON_DeleteItemFromObject(one, "secret");
		cJSON_AddItemToArray(list, one);
	}
	PQclear(rows);
	output_add(object, "secrets", list);
	return object;
}

static const char *const states[] = { "enabled", "disabled", NULL };

static int edit_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args);
	const char *why = args_bytes(&ctl->args, "why", WHY_BYTES_MAX), *state;
	struct db *db;

	args_required(&ctl->args, "state");
	state = states[args_choice(&ctl->args, "state", 0)];
	if (why && strcmp(state, "disabled") != 0)
		args_fail("--why is \"%s\": allowed only together with --state disabled", why);
	db = store_changing_open(ctl, NULL);
	if (!done_before(db, ctl, NULL)) {
		PQclear(hook_row_changing(db, &ctl->args, webhook));
		if (!db_value(db, sql_query_webhook_state_set, postgres_number(webhook),
			      postgres_text(state), postgres_text(why)))
			hook_absent(webhook);
		store_key_commit(db, ctl, output_object());
		db_do(db, sql_query_webhook_wake);
	}
	output_say(hook_json(db, webhook), "webhook {webhook} is {state}\n",
		   args_has(&ctl->args, "json"));
	db_close(db);
	return CTL_DONE;
}

static int remove_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args);
	struct db *db = store_changing_open(ctl, NULL);
	cJSON *object = output_object();

	PQclear(hook_row_changing(db, &ctl->args, webhook));
	if (!db_value(db, sql_query_webhook_remove, postgres_number(webhook)))
		hook_absent(webhook);
	db_do(db, sql_query_webhook_wake);
	db_close(db);
	output_id(object, "webhook", webhook);
	output_say(object, "webhook {webhook} is removed\n", args_has(&ctl->args, "json"));
	return CTL_DONE;
}

#define RESENT_TEMPLATE "webhook {webhook}: {resent:,} to be sent again\n"

static int resend_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args), delivery = args_id(&ctl->args, "delivery");
	struct db *db = store_changing_open(ctl, NULL);
	PGresult *hook = hook_row_changing(db, &ctl->args, webhook), *rows;
	cJSON *object = output_object();

	if (done_before(db, ctl, RESENT_TEMPLATE)) {
		db_close(db);
		return 0;
	}
	rows = db_ask(db, sql_query_webhook_resend, postgres_number(webhook), db_id(delivery));
	if (delivery && PQntuples(rows) == 0)
		log_fatal("webhook %lld has no delivery %lld that was given up", (long long)webhook,
			  (long long)delivery);
	output_id(object, "webhook", webhook);
	output_number(object, "resent", PQntuples(rows));
	store_key_answer(db, ctl, object);
	db_run(db, "COMMIT");
	db_do(db, sql_query_webhook_wake);
	db_close(db);
	if (strcmp(column_text(hook, 0, "state"), "disabled") == 0)
		say_warning("webhook %lld is disabled: they are sent once it is "
			    "enabled",
			    (long long)webhook);
	output_say(object, RESENT_TEMPLATE, args_has(&ctl->args, "json"));
	PQclear(rows);
	PQclear(hook);
	return 0;
}

static int list_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);

	output_rows(db_ask(db, sql_query_webhook_list, postgres_text(NULL),
			   postgres_number(args_id(&ctl->args, "after")),
			   postgres_number(args_count(&ctl->args, PAGE_COUNT_MAX))),
		    "webhook  state     coupon                 waiting  given up   dropped  url\n",
		    "{webhook:-8} {state:-9} {coupon:-20|every} {waiting:9} {given_up:9} "
		    "{dropped_events:9}  {url}\n",
		    args_has(&ctl->args, "json"));
	db_close(db);
	return 0;
}

static int show_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	cJSON *object = hook_json(db, webhook);
	const cJSON *secret;

	db_close(db);
	if (args_has(&ctl->args, "json")) {
		output_print(object);
		return 0;
	}
	output_template(
		"webhook {webhook} to {url}\n"
		"  coupon         {coupon|every}\n"
		"  types          {types|all}\n"
		"  state          {state} since {state_at}, by {state_by}\n"
		"[why   why            {why}\n]"
		"  queue          {waiting} requests wait, {given_up} are given up; at most "
		"{queue} of {batch} events each\n"
		"  delivered      {delivered_events} events\n"
		"[delivered_at   delivered at   {delivered_at}\n]"
		"[failing_since   failing since  {failing_since}\n]"
		"[paused_until   paused until   {paused_until}\n]"
		"[dropped_events   dropped        {dropped_events} events, the last at "
		"{dropped_at}\n]"
		"  created        {created_at}, by {created_by}\n",
		object);
	cJSON_ArrayForEach(secret, cJSON_GetObjectItemCaseSensitive(object, "secrets"))
		output_template("  secret         fingerprint {fingerprint} of {created_at}"
				"[expires_at , valid until {expires_at}]\n",
				secret);
	cJSON_Delete(object);
	return 0;
}

static int deliveries_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int is_waiting = args_has(args, "waiting"), is_failed = args_has(args, "failed");
	int64_t webhook = args_id_argument(args), after = args_id(args, "after"),
		count = args_count(args, DELIVERIES_COUNT);
	struct db *db;

	if (is_waiting && is_failed)
		args_fail("--waiting and --failed are given: allowed is one of them");
	db = store_postgres_open(ctl);
	PQclear(hook_row(db, webhook));
	output_rows(db_ask(db, sql_query_webhook_deliveries, postgres_number(webhook),
			   postgres_text(is_waiting  ? "waiting"
					 : is_failed ? "failed"
						     : NULL),
			   postgres_number(after), postgres_number(count)),
		    "delivery   state    coupon               type              events attempts  "
		    "next                      last answer\n",
		    "{delivery:-10} {state:-8} {coupon:-20} {type:-17} {events:6} {attempts:8}  "
		    "{next_at:-24|-}  [last_status {last_status}[last_error  ]]{last_error}\n",
		    args_has(args, "json"));
	db_close(db);
	return 0;
}

static int test_run(struct ctl *ctl)
{
	int64_t webhook = args_id_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	PGresult *hook = hook_row_changing(db, &ctl->args, webhook),
		 *rows = db_ask(db, sql_query_webhook_secrets, postgres_number(webhook));
	char message[4 + ULID_SIZE] = "msg_", *id = message + 4, now[CLOCK_RFC3339_SIZE], *body;
	struct post_request request = { .url = column_text(hook, 0, "url"), .message = message };
	struct text_buffer secrets = { 0 };
	const char *key = args_text(&ctl->args, "key");
	unsigned char digest[crypto_hash_sha256_BYTES];
	struct post_result result;
	cJSON *object = output_object();
	struct rules rules;
	struct post *post;
	struct ulid ulid;

	store_key_bind(db, ctl, NULL);
	db_close(db);
	for (int row = 0; row < PQntuples(rows); row++) {
		text_add_string(&secrets, row ? " " : "");
		text_add_string(&secrets, column_text(rows, row, "secret"));
	}
	ulid_new(&ulid, clock_wall_ms());
	if (key) { /* its receiver knows the copy by its id */
		crypto_hash_sha256(digest, (const unsigned char *)key, strlen(key));
		memcpy(ulid.bytes, digest, sizeof(ulid.bytes));
	}
	ulid_format(&ulid, id);
	check(asprintf(&body,
		       "[{\"specversion\":\"1.0\",\"id\":\"%s\",\"source\":\"/couponctl\","
		       "\"type\":\"" TYPE "\",\"time\":\"%s\",\"data\":{\"webhook\":\"%lld\"}}]",
		       id, clock_rfc3339(clock_wall_ms(), now), (long long)webhook) >= 0);

	request.secrets = secrets.data ? secrets.data : "";
	request.body = body;
	rules_read(&rules, &ctl->config);
	check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
	post = post_new(&rules, &request, &result);
	if (post)
		post_result(post, curl_easy_perform(post_handle(post)), &result);
	post_free(post);
	curl_global_cleanup();

	output_text(object, "url", request.url);
	output_text(object, "message", message);
	output_bool(object, "delivered", post_is_delivered(&result));
	if (result.status)
		output_number(object, "status", result.status);
	else
		output_null(object, "status");
	output_number(object, "duration_ms", result.duration_ms);
	output_text(object, "error", result.why);
	output_say(object,
		   "[status {url} answered {status} after {duration_ms} ms[error : {error}]\n]"
		   "[!status {url} gave no answer in {duration_ms} ms: {error}\n]",
		   args_has(&ctl->args, "json"));
	free(body);
	text_buffer_fini(&secrets);
	PQclear(rows);
	PQclear(hook);
	return post_is_delivered(&result) ? CTL_DONE : CTL_FAILED;
}

#define OF_CAMPAIGN_OPTION SWITCH("of-campaign", "only a webhook of one campaign")

#define SECRET_OPTIONS                                                                           \
	OPTION("secret-file", "FILE",                                                            \
	       "a file whose first line is the secret, " SECRET_PREFIX " and 24 to 64 bytes in " \
	       "base64; default: a new secret"),                                                 \
		OF_CAMPAIGN_OPTION, KEY_OPTION, BY_OPTION

static const struct command webhook_create_command = {
	.name = "webhook create",
	.run = create_run,
	.argument = "URL",
	.options = OPTIONS(
		OPTION("coupon", "ID", "only events of this coupon; default: of every coupon"),
		OPTION_LIST("types", event_types,
			    "only events of these types, separated by commas; default: all"),
		OPTION("batch", "N", "at most N events in a request, 1 to 1000; default 100"),
		OPTION("queue", "N",
		       "at most N requests are kept while they cannot be delivered, 1 to 1000000; "
		       "default 10000"),
		SECRET_OPTIONS),
	.summary = "send events to a URL from now on",
	.detail = "The command prints the id of the webhook and its secret, which is not printed\n"
		  "again. Only campaigns with --events on have events.",
};

static const struct command webhook_rotate_command = {
	.name = "webhook rotate",
	.run = rotate_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("overlap", "TIME",
		       "how long the secrets before stay valid: for example 90s, 30m, 24h, 7d; 0s "
		       "to 30d; "
		       "default 24h"),
		SECRET_OPTIONS),
	.summary = "give a webhook a new secret",
	.detail =
		"The command prints the new secret, which is not printed again. Until the overlap\n"
		"ends, every request has a signature with each valid secret.",
};

static const struct command webhook_edit_command = {
	.name = "webhook edit",
	.run = edit_run,
	.argument = "ID",
	.options = OPTIONS(OPTION_WORDS("state", "STATE", states, "enabled or disabled"),
			   OPTION("why", "TEXT",
				  "with --state disabled: the reason, which webhook show prints, 1 "
				  "to 500 bytes"),
			   OF_CAMPAIGN_OPTION, KEY_OPTION, BY_OPTION),
	.summary = "enable or disable a webhook, whoever disabled it",
	.detail = "--state is required. While a webhook is disabled, its queue stays, and new "
		  "events\n"
		  "are not queued. When it is enabled, the queue is sent at once. Repeating the\n"
		  "command changes nothing.",
};

static const struct command webhook_remove_command = {
	.name = "webhook remove",
	.run = remove_run,
	.argument = "ID",
	.options = OPTIONS(OF_CAMPAIGN_OPTION, BY_OPTION),
	.summary = "remove a webhook with its secrets and its queue",
};

static const struct command webhook_resend_command = {
	.name = "webhook show --resend",
	.run = resend_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("resend", "send requests again that were given up"),
			   OPTION("delivery", "DELIVERY",
				  "only this request; default: all that were given up"),
			   OF_CAMPAIGN_OPTION, KEY_OPTION, BY_OPTION),
	.summary = "send requests again that were given up",
	.detail = "Each request has the same webhook-id as before, and all its attempts anew.",
};

static const struct command webhook_list_command = {
	.name = "webhook list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("ID", "webhook", "all")),
	.summary = "list the webhooks by id",
	.detail = "The columns waiting and given up count requests; dropped counts events.",
};

static const struct command webhook_deliveries_command = {
	.name = "webhook show --deliveries",
	.run = deliveries_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("deliveries", "list the requests that have not arrived instead"),
			   SWITCH("waiting", "only requests that are sent or tried again"),
			   SWITCH("failed", "only requests that were given up"),
			   PAGE_OPTIONS("DELIVERY", "request", "20")),
	.summary = "list the requests of a webhook that have not arrived, the oldest first",
	.detail = "A request that has arrived is not kept.",
};

static const struct command webhook_show_command = {
	.name = "webhook show",
	.run = show_run,
	.argument = "ID",
	.modes = COMMANDS(&webhook_deliveries_command, &webhook_resend_command),
	.summary = "print a webhook, its queue, and the fingerprints of its secrets",
};

static const struct command webhook_test_command = {
	.name = "webhook test",
	.run = test_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("key", "KEY",
		       "1 to 255 bytes of printable ASCII: repeated with the same key, the event "
		       "has the "
		       "same webhook-id"),
		OF_CAMPAIGN_OPTION),
	.summary = "send one event of the type " TYPE " now, and print the answer",
	.detail = "The webhook may be disabled. This program sends the event itself, with the\n"
		  "settings of the workers, and does not repeat it.",
};

const struct command webhook_command = {
	.name = "webhook",
	.subcommands = COMMANDS(&webhook_create_command, &webhook_list_command,
				&webhook_show_command, &webhook_edit_command, &webhook_test_command,
				&webhook_rotate_command, &webhook_remove_command),
	.summary = "send events to others, and list what has not arrived",
};
