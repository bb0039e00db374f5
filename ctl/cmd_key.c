/*
 * couponctl key: API keys. A change is committed in PostgreSQL, and then written to Redis; if that
 * fails, the keeper completes it. A secret is printed as soon as its hash is committed;
 * docs/about/lifecycle.md says what to do when the command dies in between.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/api_keys.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis.h"
#include "ctl/output.h"
#include "ctl/recover/recover_keys.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "ctl/times.h"
#include "embed.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT_SIZE (KEY_TEXT_LEN + 1)
#define HASH_SIZE (2 * SHA256_DIGEST_LENGTH + 1)
#define OVERLAP_S 86400
#define OVERLAP_DAYS_MAX 30

static const char *const roles[] = {
#define ROLE(name, text) text,
	KEY_ROLES(ROLE)
#undef ROLE
		NULL
};

#define ROLES_TEXT "issue, read, use, monitor, campaign and admin"

/* ---- both stores */

/* Writes to Redis what PostgreSQL has changed. Returns NULL, or why Redis does not have it. */
static const char *redis_tell(struct db *db, struct redis_client *redis)
{
	PGresult *counts = db_ask(db, sql_query_change_counts);
	int64_t to = column_number(counts, 0, "keys_version"), from;
	enum key_copied copied = KEY_COPIED;

	fault_point(FAULT_KEY_BEFORE_REDIS);
	if (key_copy_version(redis, &from))
		copied = KEY_COPY_FAILED;
	while (copied == KEY_COPIED && from < to) {
		PGresult *rows = db_ask(db, sql_query_key_records, postgres_number(from),
					postgres_number(KEY_COPY_PAGE));

		copied = key_copy_write(redis, column_text(counts, 0, "installation"), rows, &from,
					to);
		PQclear(rows);
	}
	PQclear(counts);
	switch (copied) {
	case KEY_COPIED:
		return NULL;
	case KEY_COPY_FAILED:
		return redis_client_error(redis);
	case KEY_COPY_FOREIGN:
		return "it belongs to another installation";
	case KEY_COPY_UNADOPTED:
		return "it belongs to no installation yet";
	}
	return NULL;
}

/*
 * Ends a change that Redis has, or does not have because of `why`. `is_waited`: waits until
 * gateways know the change. Returns the exit status.
 */
static int change_end(struct db *db, struct redis_client *redis, const char *why, int is_waited)
{
	int status = 0;

	if (why)
		say_warning("PostgreSQL has the change, but Redis could not be "
			    "told: %s; a keeper will do it",
			    why);
	else if (is_waited)
		status = store_gateways_wait(db, redis, STORE_NEWS_KEYS);
	redis_client_free(redis);
	db_close(db);
	return why ? CTL_NOT_IN_REDIS : status;
}

/* Opens both stores for a change, which must not be based on an earlier state. */
static struct db *changing_open(const struct ctl *ctl, struct redis_client **redis)
{
	struct db *db = store_changing_open(ctl, redis);
	int64_t ahead = keys_ahead(db, *redis);

	store_redis_check(*redis, ahead >= 0);
	if (ahead > 0)
		log_fatal_as(CTL_AWAY, KEYS_AHEAD_TEXT, (long long)ahead);
	return db;
}

/* ---- texts */

/* Makes a new secret text of the key, and its hash. */
static void text_make(const char *id, char text[TEXT_SIZE], char hash[HASH_SIZE])
{
	unsigned char secret[KEY_SECRET_BYTES], digest[SHA256_DIGEST_LENGTH];
	size_t head = (size_t)snprintf(text, TEXT_SIZE, KEY_PREFIX "%s_", id);

	randombytes_buf(secret, sizeof(secret));
	sodium_bin2base64(text + head, TEXT_SIZE - head, secret, sizeof(secret),
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	SHA256((const unsigned char *)text, strlen(text), digest);
	sodium_bin2hex(hash, HASH_SIZE, digest, sizeof(digest));
	OPENSSL_cleanse(secret, sizeof(secret));
}

/*
 * Prints the text as the only line of standard output, and forgets it. `else_do`: what an operator
 * is to do if that fails.
 */
static void text_print(const struct args *args, char text[TEXT_SIZE], const char *id,
		       const char *else_do)
{
	int failed;

	fault_point(FAULT_KEY_BEFORE_PRINT);
	setvbuf(stdout, NULL, _IONBF, 0); /* no copy stays in a buffer */
	failed = args_has(args, "json")
			 ? printf("{\"key\":\"%s\",\"secret\":\"%s\"}\n", id, text) < 0
			 : puts(text) < 0;
	OPENSSL_cleanse(text, TEXT_SIZE);
	if (failed)
		log_fatal_as(
			CTL_UNKNOWN,
			"standard output cannot be written, and nobody knows the new secret of "
			"key %s: %s",
			id, else_do);
}

/*
 * Begins a transaction and takes --key in it. Returns whether the command was done before: then the
 * key is printed without the secret, which is stored nowhere, and the command is done.
 */
static int done_before(struct db *db, const struct ctl *ctl)
{
	cJSON *before = store_key_begin(db, ctl);
	const char *id;

	if (!before)
		return 0;
	id = cJSON_GetStringValue(cJSON_GetObjectItem(before, "key"));
	output_made("key %s was made before", id);
	say_warning("key %s was printed before, and its secret is stored nowhere: "
		    "couponctl key rotate %s gives it another one",
		    id, id);
	output_say(before, "{key}\n", args_has(&ctl->args, "json"));
	return 1;
}

/* Commits the change, and with it the answer to a repetition with the same --key. */
static void change_commit_keyed(struct db *db, const struct ctl *ctl, const char *id)
{
	cJSON *object = output_object();

	output_text(object, "key", id);
	output_null(object, "secret");
	store_key_commit(db, ctl, object);
}

/* The argument. If a whole secret text was given by mistake, it must not be printed. */
static const char *id_argument(const struct args *args)
{
	const char *id = args->argument;

	if (!key_id_valid(id, strlen(id)))
		args_fail("ID is not the id of a key: allowed are the 10 characters between the "
			  "underscores of " KEY_PREFIX "ID_SECRET");
	return id;
}

/* The row of sql_query_key_list; one that is absent ends the process. */
static PGresult *key_row(struct db *db, const char *id)
{
	PGresult *row = db_ask(db, sql_query_key_list, postgres_text(id), postgres_text(NULL),
			       postgres_text(NULL));

	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "there is no key %s", id);
	return row;
}

/* ---- the last use */

/* The replies for the keys of the rows; NULL: Redis does not tell, and standard error says why. */
static redisReply *last_uses_read(const struct ctl *ctl, const PGresult *rows)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	int n = PQntuples(rows);
	const char **words = checked(calloc((size_t)n + 2, sizeof(*words)));
	redisReply *reply = NULL;

	words[0] = "HMGET";
	words[1] = KEYS_USED_KEY;
	for (int row = 0; row < n; row++)
		words[2 + row] = column_text(rows, row, "key");
	if (n > 0 && redis_client_open(redis) == 0)
		reply = redis_client_call(redis, n + 2, words);
	if (n > 0 && !reply)
		say_warning("when keys were last used is unknown: Redis: %s",
			    redis_client_error(redis));
	free(words);
	redis_client_free(redis);
	return reply;
}

/* Prints keys with their last use. Clears the rows. */
static void keys_print(const struct ctl *ctl, PGresult *rows, const char *head,
		       const char *template)
{
	int as_json = args_has(&ctl->args, "json");
	redisReply *uses = last_uses_read(ctl, rows);

	if (head && !as_json)
		fputs(head, stdout);
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = output_object();
		const redisReply *use = uses && uses->type == REDIS_REPLY_ARRAY ? uses->element[row]
										: NULL;
		char text[CLOCK_RFC3339_SIZE];
		int64_t ms;

		output_row(object, rows, row);
		if (use && use->type == REDIS_REPLY_STRING &&
		    id_parse(use->str, use->len, &ms) == 0)
			output_text(object, "last_used_at", clock_rfc3339(ms, text));
		else
			output_null(object, "last_used_at");
		output_say(object, template, as_json);
	}
	freeReplyObject(uses);
	PQclear(rows);
}

/* ---- the commands */

static void roles_read(const struct args *args, struct postgres_array *array)
{
	const char *given = args_required(args, "role");
	char *copy = checked(strdup(given)), *rest = copy, *word;
	int seen[KEY_ROLES_N] = { 0 };

	while ((word = strsep(&rest, ",")) != NULL) {
		size_t i = 0;

		while (i < KEY_ROLES_N && strcmp(roles[i], word) != 0)
			i++;
		if (i == KEY_ROLES_N || seen[i]++)
			args_fail("--role is \"%s\": allowed are " ROLES_TEXT ", each once, "
				  "separated by commas",
				  given);
		postgres_array_add_text(array, word, strlen(word));
	}
	free(copy);
}

/* The ids of --coupons; NULL of SQL: every coupon. */
static struct postgres_argument coupons_read(const struct args *args, struct postgres_array *array)
{
	const char *given = args_text(args, "coupons");
	char *copy = checked(strdup(given ? given : "")), *rest = given ? copy : NULL, *word;
	int64_t coupon;

	while ((word = strsep(&rest, ",")) != NULL) {
		if (id_parse(word, strlen(word), &coupon) || array->n == KEY_COUPONS_MAX)
			args_fail("--coupons is \"%s\": allowed are 1 to %d ids, separated by "
				  "commas",
				  given, KEY_COUPONS_MAX);
		postgres_array_add_number(array, coupon);
	}
	free(copy);
	return given ? postgres_array(array) : postgres_text(NULL);
}

/* The names of --budgets. NULL of SQL: no budget if --coupons is given, otherwise every one. */
static struct postgres_argument budgets_read(const struct args *args, struct postgres_array *array)
{
	const char *given = args_text(args, "budgets");
	char *copy = checked(strdup(given ? given : "")), *rest = given ? copy : NULL, *word;

	if (given && !args_has(args, "coupons"))
		args_fail("--budgets is \"%s\": allowed only together with --coupons; a key for "
			  "every coupon has every budget",
			  given);
	while ((word = strsep(&rest, ",")) != NULL) {
		if (!*word || strlen(word) > KEY_NAME_MAX ||
		    strspn(word, KEY_NAME_BYTES) != strlen(word) || strcasecmp(word, "none") == 0 ||
		    strcasecmp(word, "null") == 0 || array->n == KEY_BUDGETS_MAX)
			args_fail("--budgets is \"%s\": allowed are 1 to %d names of budgets, "
				  "separated by commas",
				  given, KEY_BUDGETS_MAX);
		postgres_array_add_text(array, word, strlen(word));
	}
	free(copy);
	return given ? postgres_array(array) : postgres_text(NULL);
}

/* --expires, a time in the future, as an argument of a statement. */
static struct postgres_argument expiry_read(const struct ctl *ctl, struct db *db)
{
	static const char *const options[] = { "expires", NULL };
	char zone[ZONE_SIZE];
	int64_t expires_ms = time_read(&ctl->args, "expires", TIME_END, db,
				       zone_find(ctl, NULL, db, zone), 0);

	zone_warn(ctl, options);
	if (expires_ms <= clock_wall_ms())
		args_fail("--expires is \"%s\": allowed is a time in the future",
			  args_text(&ctl->args, "expires"));
	return postgres_number(expires_ms);
}

static int create_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *name = args_required(args, "name");
	struct postgres_array role_array = { .type = POSTGRES_TEXT },
			      coupon_array = { .type = POSTGRES_INT8 },
			      budget_array = { .type = POSTGRES_TEXT };
	struct postgres_argument coupons = coupons_read(args, &coupon_array),
				 budgets = budgets_read(args, &budget_array),
				 expires = postgres_text(NULL); /* never */
	int64_t rate = args_number(args, "rate", 1, KEY_RATE_MAX, 0);
	char id[KEY_ID_LEN + 1], text[TEXT_SIZE], hash[HASH_SIZE];
	struct redis_client *redis;
	struct db *db;

	time_check(args, "expires");
	if (!*name || strlen(name) > KEY_NAME_MAX || strspn(name, KEY_NAME_BYTES) != strlen(name))
		args_fail("--name is \"%s\": allowed are 1 to %d letters, digits, '.', '_' and '-'",
			  name, KEY_NAME_MAX);
	roles_read(args, &role_array);
	db = changing_open(ctl, &redis);
	if (done_before(db, ctl))
		return change_end(db, redis, redis_tell(db, redis), 0);
	if (args_has(args, "expires"))
		expires = expiry_read(ctl, db);

	for (int i = 0; i < KEY_ID_LEN; i++)
		id[i] = KEY_ID_DIGITS[randombytes_uniform(sizeof(KEY_ID_DIGITS) - 1)];
	id[KEY_ID_LEN] = '\0';
	text_make(id, text, hash);
	if (!db_value(db, sql_query_key_create, postgres_text(id), postgres_text(name),
		      postgres_array(&role_array), coupons, budgets, expires,
		      rate ? postgres_number(rate) : postgres_text(NULL), postgres_text(hash)))
		log_fatal("there are already 10,000 keys that are not revoked, the maximum");
	change_commit_keyed(db, ctl, id);
	text_print(args, text, id, "revoke it");
	postgres_array_fini(&role_array);
	postgres_array_fini(&coupon_array);
	postgres_array_fini(&budget_array);
	return change_end(db, redis, redis_tell(db, redis), 0);
}

static int rotate_run(struct ctl *ctl)
{
	const char *id = id_argument(&ctl->args);
	int64_t overlap_s = args_duration_s(&ctl->args, "overlap", OVERLAP_DAYS_MAX, OVERLAP_S);
	char text[TEXT_SIZE], hash[HASH_SIZE];
	struct redis_client *redis;
	struct db *db = changing_open(ctl, &redis);
	PGresult *row = key_row(db, id);

	if (done_before(db, ctl))
		return change_end(db, redis, redis_tell(db, redis), 1);
	text_make(id, text, hash);
	if (!db_value(db, sql_query_key_rotate, postgres_text(id), postgres_text(hash),
		      postgres_number(overlap_s)))
		log_fatal("key %s is revoked or has expired: create another one", id);
	change_commit_keyed(db, ctl, id);
	text_print(&ctl->args, text, id,
		   "the previous secret is still valid until the overlap ends: until then create "
		   "another key instead");
	PQclear(row);
	return change_end(db, redis, redis_tell(db, redis), 1);
}

/* Also works without Redis, and while PostgreSQL is behind Redis: a revocation must not wait. */
static int revoke_run(struct ctl *ctl)
{
	const char *id = id_argument(&ctl->args), *why = NULL;
	struct redis_client *redis;
	struct db *db;
	struct key_counts counts;
	PGresult *row;
	int64_t n;
	int status;

	args_ask(&ctl->args, "Key %s will be revoked for ever: its users are refused at once.", id);
	redis = redis_client_new(ctl->config.redis_url, NULL);
	db = store_postgres_open(ctl);
	/* Redis of another installation ends the process. */
	if (redis_client_open(redis) || behind_read(db, redis) < 0)
		why = redis_client_error(redis);
	store_by_set(db, ctl);
	store_key_bind(db, ctl, NULL);

	/*
	 * Only Redis may have the key, or a later state of other keys: a PostgreSQL that was put
	 * back gets them from there, before this change takes the number of one that was lost.
	 */
	row = db_ask(db, sql_query_key_list, postgres_text(id), postgres_text(NULL),
		     postgres_text(NULL));
	if (!why && (PQntuples(row) == 0 || keys_ahead(db, redis) > 0)) {
		db_run(db, "BEGIN");
		keys_restore(db, redis, &counts, NULL, NULL);
		db_run(db, "COMMIT");
		n = counts.created + counts.changed + counts.revoked;
		if (n > 0 || counts.ahead > 0)
			say_warning("PostgreSQL was put back to an earlier moment: "
				    "%lld keys were brought back from Redis; run couponctl recover "
				    "--all",
				    (long long)n);
	}
	PQclear(row);

	if (!db_value(db, sql_query_key_revoke, postgres_text(id)))
		log_fatal_as(why ? CTL_AWAY : CTL_ABSENT, "there is no key %s%s", id,
			     why ? " in PostgreSQL, and Redis cannot be read" : "");
	row = key_row(db, id);
	status = change_end(db, redis, why ? why : redis_tell(db, redis), 1);
	output_rows(row, NULL, "key {key} is revoked\n", args_has(&ctl->args, "json"));
	return status;
}

static int list_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);

	keys_print(ctl,
		   db_ask(db, sql_query_key_list, postgres_text(NULL),
			  postgres_text(args_text(&ctl->args, "after")),
			  postgres_number(args_count(&ctl->args, PAGE_COUNT_MAX))),
		   "key        state   roles         expires                  "
		   "last used                coupons name\n",
		   "{key:-10} {state:-7} {roles:-13} {expires_at:-24|never} "
		   "{last_used_at:-24|-} {coupons:-7|every} {name}\n");
	db_close(db);
	return 0;
}

static int show_run(struct ctl *ctl)
{
	const char *id = id_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);

	keys_print(ctl, key_row(db, id), NULL,
		   "key {key} of {name}\n"
		   "  state    {state}[revoked_at  since {revoked_at}]\n"
		   "  roles    {roles}\n"
		   "  coupons  {coupons|every}\n"
		   "[budgets  budgets  {budgets}\n]"
		   "  rate     {rate|no limit}\n"
		   "  expires  {expires_at|never}\n"
		   "[previous_until   rotated  the secret before is good until {previous_until}\n]"
		   "  created  {created_at} by {created_by}\n"
		   "  changed  by {by}, version {version}\n"
		   "  used     {last_used_at|-}\n");
	db_close(db);
	return 0;
}

static const struct command key_create_command = {
	.name = "key create",
	.run = create_run,
	.options = OPTIONS(
		OPTION("name", "NAME",
		       "the name of the client: 1 to 64 letters, digits, '.', '_' and '-'"),
		OPTION_LIST("role", roles, "what the key may do, separated by commas"),
		OPTION("coupons", "LIST",
		       "only these coupons, ids separated by commas; default: every one"),
		OPTION("budgets", "LIST",
		       "with --coupons: these budgets too, names separated by commas; default: "
		       "none"),
		OPTION("expires", "T",
		       "when the key ends, or the day after which it ends; default: never"),
		OPTION("rate", "N",
		       "at most N requests per second, 1 to 1000000; default: no limit"),
		KEY_OPTION, BY_OPTION),
	.summary = "create an API key, and print it",
	.detail =
		"--name and --role are required. The command prints only the key, " KEY_PREFIX
		"ID_SECRET.\n"
		"The secret is stored nowhere and is not printed again: repeated with --key, the\n"
		"command prints only the id.",
};

static const struct command key_list_command = {
	.name = "key list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("ID", "key", "all")),
	.summary = "list the API keys, the newest first",
};

static const struct command key_show_command = {
	.name = "key show",
	.run = show_run,
	.argument = "ID",
	.summary = "print an API key without its secret",
};

static const struct command key_revoke_command = {
	.name = "key revoke",
	.run = revoke_run,
	.argument = "ID",
	.options = OPTIONS(KEY_OPTION, YES_OPTION, BY_OPTION),
	.summary = "revoke an API key for ever",
	.detail = "The command works while Redis is away, and while PostgreSQL is behind Redis. On "
		  "a\n"
		  "terminal, it asks first.",
};

static const struct command key_rotate_command = {
	.name = "key rotate",
	.run = rotate_run,
	.argument = "ID",
	.options = OPTIONS(OPTION("overlap", "TIME",
				  "how long the secret before stays valid: for example 90s, 30m, "
				  "24h, 7d; 0s to 30d; "
				  "default 24h"),
			   KEY_OPTION, BY_OPTION),
	.summary = "give an API key a new secret, and print the key",
	.detail =
		"The command prints only the key, with the same id and the new secret, which is "
		"not\n"
		"printed again. Only the last secret before has an overlap: another rotation ends\n"
		"the secrets before that one at once.",
};

const struct command key_command = {
	.name = "key",
	.subcommands = COMMANDS(&key_create_command, &key_list_command, &key_show_command,
				&key_rotate_command, &key_revoke_command),
	.summary = "create, list, rotate and revoke API keys",
};
