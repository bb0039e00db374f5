#include "ctl/store.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/program/weak_settings.h"
#include "coupon/copies.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "embed.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 500
#define NAME_BYTES_MAX 100
#define END_TIMEOUT_MS 2000

struct db *store_postgres_open(const struct ctl *ctl)
{
	return db_open("DATABASE_URL", ctl->config.database_url,
		       durability_is_synchronous(&ctl->config));
}

struct db *store_admin_open(const struct ctl *ctl)
{
	const char *url = ctl->config.database_admin_url;
	struct db *db = *url ? db_open("DATABASE_ADMIN_URL", url,
				       durability_is_synchronous(&ctl->config))
			     : store_postgres_open(ctl);

	transport_check(&ctl->config, CONFIG_CTL);
	return db;
}

struct redis_client *store_redis_open(const struct ctl *ctl)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);

	if (redis_client_open(redis))
		log_fatal_as(CTL_AWAY, "Redis, which REDIS_URL names, cannot be reached: %s",
			     redis_client_error(redis));
	return redis;
}

static void own_read(struct db *db, struct changes *changes)
{
	PGresult *rows = db_ask(db, sql_query_change_counts);

	changes_take(changes, rows);
	PQclear(rows);
}

static void old_refuse(const struct changes *changes, const struct changes *copy,
		       enum relation relation)
{
	char own[SERVER_TEXT_SIZE], followed[SERVER_TEXT_SIZE];

	if (relation == RELATION_OLD)
		log_fatal("nothing was done, because " RELATION_OLD_TEXT ": it is %s, and %s is "
			  "followed; " SERVER_OLD_MEND,
			  server_text(&changes->server, own), server_text(&copy->server, followed));
}

/*
 * Reads the numbers of both stores. The copy in Redis is read first: it must not be newer than what
 * it is compared with. Returns 0, or -1 if Redis cannot be read. Ends the process if the stores
 * belong to different installations, or if this PostgreSQL is a standby.
 */
static int both_read(struct db *db, struct redis_client *redis, struct changes *changes,
		     struct changes *copy, struct standing *standing)
{
	if (changes_copy_read(copy, redis))
		return -1;
	own_read(db, changes);
	*standing = changes_stand(RELATION_UNKNOWN, changes, copy);
	if (standing->relation == RELATION_STANDBY)
		log_fatal(SERVER_STANDBY_TEXT ": DATABASE_URL must name the primary, or all "
					      "servers and target_session_attrs=read-write");
	if (standing->relation == RELATION_FOREIGN)
		log_fatal("nothing was done, because PostgreSQL, which DATABASE_URL names, is of "
			  "installation %s, and Redis, which REDIS_URL names, belongs to %s; see "
			  "couponctl installation",
			  changes->installation, copy->installation);
	return 0;
}

void store_server_find(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;

	for (size_t i = 1; i < db_hosts_n(db); i++) {
		if (changes_copy_read(&copy, redis))
			return;
		own_read(db, &changes);
		if (changes_stand(RELATION_UNKNOWN, &changes, &copy).relation != RELATION_OLD)
			return;
		db_leave(db, RELATION_OLD_TEXT);
	}
}

int64_t behind_read(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;
	struct standing standing;

	if (both_read(db, redis, &changes, &copy, &standing))
		return -1;
	old_refuse(&changes, &copy, standing.relation);
	return standing.behind;
}

int64_t behind_read_any(struct db *db, struct redis_client *redis, enum follow follow, int is_dry,
			struct changes *changes, struct changes *copy)
{
	struct standing standing;

	if (both_read(db, redis, changes, copy, &standing))
		return -1;
	if (!is_dry)
		standing.relation = changes_follow(redis, changes, follow);
	if (follow != FOLLOW_ANY)
		old_refuse(changes, copy, standing.relation);
	if (standing.relation == RELATION_UNKNOWN)
		return -1;
	if (!is_dry && standing.relation == RELATION_OWN &&
	    both_read(db, redis, changes, copy, &standing))
		return -1;
	return standing.behind;
}

int behind_copy(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;
	struct standing standing;

	return both_read(db, redis, &changes, &copy, &standing)
		       ? -1
		       : changes_copy_raise(redis, &changes, &copy);
}

void behind_refuse(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;
	struct standing standing = { .behind = -1 };

	/* A server that is not followed is followed before its change is made. */
	if (both_read(db, redis, &changes, &copy, &standing) == 0 &&
	    standing.follow == FOLLOW_OTHER) {
		old_refuse(&changes, &copy, changes_follow(redis, &changes, FOLLOW_OTHER));
		standing.behind = behind_read(db, redis);
	}
	old_refuse(&changes, &copy, standing.relation);
	if (standing.behind < 0)
		log_fatal_as(
			CTL_AWAY,
			"nothing was changed, because Redis, which REDIS_URL names and which knows "
			"whether PostgreSQL was put back to an earlier moment, cannot be read: %s",
			redis_client_error(redis));
	if (standing.behind > 0)
		log_fatal_as(CTL_AWAY, BEHIND_TEXT, (long long)standing.behind);
}

/* How history has the command of this process. `id` 0: it is not recorded, or that is unknown. */
static struct {
	char *url;
	int64_t id;
	int has_begun;
	int hides_why; /* the sentence may have an exchange code, which the history must not have */
} recorded;

#define WHY_BYTES_MAX 500 /* of a sentence that the history has */

/* Why the command fails, for the history (malloc); NULL: it does not, or there is no sentence. */
static char *why_make(int status)
{
	const char *last = status == CTL_DONE || recorded.hides_why ? NULL : say_last();
	size_t len = last ? strlen(last) : 0;

	if (len == 0 || !json_text_is_valid(last))
		return NULL;
	if (len > WHY_BYTES_MAX)
		for (len = WHY_BYTES_MAX; (last[len] & 0xc0) == 0x80;) /* within a character */
			len--;
	return checked(strndup(last, len));
}

/*
 * Records the exit status, and why it failed. If PostgreSQL is away, history does not show how the
 * command ended.
 */
static void command_end(int status, void *unused)
{
	const struct postgres_options options = { .url = recorded.url,
						  .application_name = log_program_name(),
						  .connect_timeout_ms = END_TIMEOUT_MS };
	char *why = why_make(status);
	const struct postgres_argument arguments[] = { postgres_number(recorded.id),
						       postgres_number(status),
						       postgres_text(why) };
	const struct postgres_patience patience = { .timeout_ms = END_TIMEOUT_MS };
	struct postgres *postgres = postgres_new(&options);

	(void)unused;
	if (postgres_open(postgres) == 0)
		PQclear(postgres_query(postgres, sql_query_command_end, 3, arguments, &patience));
	postgres_free(postgres);
	free(why);
	free(recorded.url);
}

int store_is_recorded(void)
{
	return recorded.has_begun;
}

/*
 * The words of the command line again (malloc), each after `divider`, without the options whose
 * names are in `without`. `hides_codes`: without exchange codes.
 */
static char *words_join(const struct args *args, char divider, const char *const *without,
			int hides_codes)
{
	const struct command *command = args->command;
	const char *name = command->argument;
	size_t size;
	char *text;
	FILE *out = checked(open_memstream(&text, &size));

	for (int i = 0; i < args->arguments_n; i++) {
		const char *next = strchr(name, ' ');
		size_t len = next ? (size_t)(next - name) : strlen(name);
		int is_code = memmem(name, len, "CODE", 4) != NULL;

		fprintf(out, "%c%s", divider, hides_codes && is_code ? "…" : args->arguments[i]);
		name = next ? next + 1 : name;
	}
	for (int i = 0; command->options && command->options[i].name; i++) {
		const struct option *option = &command->options[i];
		const char *const *left_out = without;

		while (*left_out && strcmp(*left_out, option->name) != 0)
			left_out++;
		if (args->values[i] && !*left_out && !option->is_of_terminal)
			fprintf(out, "%c--%s%s%s", divider, option->name, option->value ? "=" : "",
				hides_codes && option->value && strcmp(option->value, "WORD") == 0
					? "…"
					: args->values[i]);
	}
	check(fclose(out) == 0);
	return text;
}

void store_by_set(struct db *db, const struct ctl *ctl)
{
	const char *name = args_bytes(&ctl->args, "by", NAME_BYTES_MAX);
	char host[64] = "", own[NAME_BYTES_MAX + 1], *command, *words;

	if (!name) {
		const char *user = getenv("SUDO_USER"); /* the user who called sudo */
		const struct passwd *entry = getpwuid(getuid());

		if (!user || !*user)
			user = entry ? entry->pw_name : "unknown";
		gethostname(host, sizeof(host) - 1);
		snprintf(own, sizeof(own), "%.30s@%.60s", user, host);
		name = own;
	}
	db_judge(db);
	if (recorded.id > 0) {
		db_do(db, sql_query_session_by, postgres_text(name));
		return;
	}

	/* The option that selects a mode is among the words, so the name is without it. */
	command = strndup(ctl->args.command->name, (size_t)args_name_len(ctl->args.command));
	check(command != NULL);
	words = words_join(&ctl->args, ' ', (const char *const[]){ "by", NULL }, 1);
	recorded.has_begun = 1;
	recorded.hides_why = strncmp(command, "codes", strlen("codes")) == 0;
	recorded.id = db_value(db, sql_query_command_begin, postgres_text(name),
			       postgres_text(command), postgres_text(words));
	free(command);
	free(words);
	recorded.url = checked(strdup(ctl->config.database_url));
	say_fatal();
	check(on_exit(command_end, NULL) == 0);
}

cJSON *store_key_take(struct db *db, const struct ctl *ctl, const char *file)
{
	const char *key = args_text(&ctl->args, "key"), *answer;
	size_t len = key ? strlen(key) : 0;
	unsigned char digest[crypto_hash_sha256_BYTES];
	char words[2 * crypto_hash_sha256_BYTES + 1], *whole;
	cJSON *object = NULL;
	PGresult *row;
	crypto_hash_sha256_state state;
	static char bytes[65536];
	struct stat about;
	FILE *stream;
	size_t n;

	if (!key)
		return NULL;
	if (len < 1 || len > COMMAND_KEY_MAX)
		args_fail("--key has %zu bytes: allowed are 1 to %d bytes of printable ASCII", len,
			  COMMAND_KEY_MAX);
	for (const char *p = key; *p; p++)
		if (*p < ' ' || *p > '~')
			args_fail("--key is \"%s\": allowed are 1 to %d bytes of printable ASCII",
				  key, COMMAND_KEY_MAX);
	if (!ctl->runs_approved && strncmp(key, APPROVAL_KEY, strlen(APPROVAL_KEY)) == 0)
		args_fail("--key is \"%s\": keys that begin with \"" APPROVAL_KEY
			  "\" are those of couponctl approval give",
			  key);

	/*
	 * The digest of the words, and of the content of the file. A code may have ends of lines,
	 * and JSON too, but neither has this divider.
	 */
	whole = words_join(&ctl->args, '\x1f', (const char *const[]){ "by", "key", NULL }, 0);
	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const unsigned char *)whole, strlen(whole) + 1);
	if (file) {
		stream = fopen(file, "re");
		if (!stream)
			args_fail("the file \"%s\" cannot be read: %s", file, strerror(errno));
		if (fstat(fileno(stream), &about) || !S_ISREG(about.st_mode))
			args_fail("--key needs a regular file, which can be read twice, and \"%s\" "
				  "is none",
				  file);
		while ((n = fread(bytes, 1, sizeof(bytes), stream)) > 0)
			crypto_hash_sha256_update(&state, (const unsigned char *)bytes, n);
		if (ferror(stream))
			args_fail("the file \"%s\" cannot be read: %s", file, strerror(errno));
		fclose(stream);
	}
	crypto_hash_sha256_final(&state, digest);
	sodium_bin2hex(words, sizeof(words), digest, sizeof(digest));
	free(whole);

	row = db_ask(db, sql_query_command_key_take, postgres_text(key),
		     postgres_text(ctl->args.command->name), postgres_text(words));
	if (!db_is_true(row, 0, "is_same"))
		log_fatal_as(CTL_KEY_REUSED,
			     "--key is \"%s\": it was given before, to %s with other arguments or "
			     "options, and nothing was done: allowed is a key of its own for each "
			     "command",
			     key, column_text(row, 0, "made_by"));
	answer = column_text(row, 0, "answer");
	if (!db_is_true(row, 0, "is_new"))
		object = checked(*answer ? cJSON_Parse(answer) : output_object());
	PQclear(row);
	return object;
}

void store_key_answer(struct db *db, const struct ctl *ctl, const cJSON *answer)
{
	char *text;

	if (!args_has(&ctl->args, "key"))
		return;
	text = checked(json_write(answer));
	db_do(db, sql_query_command_key_answer, postgres_text(args_text(&ctl->args, "key")),
	      postgres_text(text));
	cJSON_free(text);
}

cJSON *store_key_begin(struct db *db, const struct ctl *ctl)
{
	cJSON *before;

	db_run(db, "BEGIN");
	before = store_key_take(db, ctl, NULL);
	if (before)
		db_run(db, "ROLLBACK");
	return before;
}

void store_key_commit(struct db *db, const struct ctl *ctl, cJSON *answer)
{
	store_key_answer(db, ctl, answer);
	cJSON_Delete(answer);
	db_run(db, "COMMIT");
}

void store_key_bind(struct db *db, const struct ctl *ctl, const char *file)
{
	cJSON_Delete(store_key_take(db, ctl, file));
}

struct db *store_changing_open(const struct ctl *ctl, struct redis_client **redis)
{
	struct redis_client *opened = store_redis_open(ctl);
	struct db *db = store_postgres_open(ctl);

	store_server_find(db, opened);
	behind_refuse(db, opened);
	store_by_set(db, ctl);
	if (redis)
		*redis = opened;
	else
		redis_client_free(opened);
	return db;
}

PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon)
{
	PGresult *row = db_ask(db, sql, postgres_number(coupon));

	if (PQntuples(row) == 0)
		log_fatal_as(CTL_ABSENT, "there is no coupon %lld", (long long)coupon);
	return row;
}

PGresult *store_receive_ask(struct db *db, const char *sql, int n, const struct receive *receive)
{
	struct receive_args args;
	PGresult *rows;

	receive_args_init(&args);
	receive_args_add(&args, receive);
	rows = db_query_arguments(db, sql, n, args.arguments);
	receive_args_fini(&args);
	return rows;
}

void slot_arrays_init(struct slot_arrays *arrays)
{
	*arrays = (struct slot_arrays){
		.users.type = POSTGRES_TEXT,
		.numbers.type = POSTGRES_INT2,
		.batches.type = POSTGRES_UUID,
		.indexes.type = POSTGRES_INT2,
		.generations.type = POSTGRES_INT4,
		.times.type = POSTGRES_INT8,
	};
}

void slot_arrays_add(struct slot_arrays *arrays, const struct slot *slots, size_t n)
{
	for (const struct slot *slot = slots; slot < slots + n; slot++) {
		postgres_array_add_text(&arrays->users, slot->user.text, slot->user.len);
		postgres_array_add_number(&arrays->numbers, slot->number);
		postgres_array_add_uuid(&arrays->batches, &slot->batch);
		postgres_array_add_number(&arrays->indexes, slot->index);
	}
}

void slot_arrays_fini(struct slot_arrays *arrays)
{
	struct postgres_array *const all[] = { &arrays->users,       &arrays->numbers,
					       &arrays->batches,     &arrays->indexes,
					       &arrays->generations, &arrays->times };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		postgres_array_fini(all[i]);
}

PGresult *store_slots_ask(struct db *db, const char *sql, int64_t coupon, const struct slot *slots,
			  size_t n)
{
	struct slot_arrays arrays;
	PGresult *rows;

	slot_arrays_init(&arrays);
	slot_arrays_add(&arrays, slots, n);
	rows = db_ask(db, sql, postgres_number(coupon), postgres_array(&arrays.users),
		      postgres_array(&arrays.numbers), postgres_array(&arrays.batches),
		      postgres_array(&arrays.indexes));
	slot_arrays_fini(&arrays);
	return rows;
}

/* Keeps the slots whose positions, from 1, PostgreSQL returned, and clears the result. */
static size_t list_keep(struct slot *list, PGresult *ords)
{
	size_t n = (size_t)PQntuples(ords);

	for (size_t i = 0; i < n; i++)
		list[i] = list[column_number(ords, (int)i, "ord") - 1];
	PQclear(ords);
	return n;
}

size_t store_keep_open(struct db *db, int64_t coupon, struct slot *list, size_t n)
{
	if (n == 0)
		return 0;
	return list_keep(list, store_slots_ask(db, sql_query_lost_candidates, coupon, list, n));
}

size_t store_lost_record(struct db *db, int64_t coupon, struct slot *list, size_t n,
			 struct slot_arrays *arrays)
{
	slot_arrays_add(arrays, list, n);
	if (n > 0)
		n = list_keep(list, db_ask(db, sql_query_receive_lost, postgres_number(coupon),
					   postgres_array(&arrays->generations),
					   postgres_array(&arrays->batches),
					   postgres_array(&arrays->indexes),
					   postgres_array(&arrays->users),
					   postgres_array(&arrays->numbers),
					   postgres_array(&arrays->times)));
	slot_arrays_fini(arrays);
	return n;
}

char *store_receive_text(const PGresult *rows, int row, int64_t coupon,
			 char out[STORE_RECEIVE_SIZE])
{
	const char *user = column_text(rows, row, "user_id");
	char batch[ULID_SIZE] = "";
	struct ulid ulid;

	out[0] = '\0';
	/* A code that was used when it was imported has a user alone. */
	if (!*user || db_is_null(rows, row, "batch"))
		return out;
	if (ulid_from_uuid(&ulid, column_text(rows, row, "batch")) == 0)
		ulid_format(&ulid, batch);
	snprintf(out, STORE_RECEIVE_SIZE, "%lld.%s.%s.%s", (long long)coupon, user, batch,
		 column_text(rows, row, "idx"));
	return out;
}

int64_t store_coupons_read(struct db *db, const char *sql, int64_t after, int64_t count,
			   store_row_fn *take, void *context)
{
	int64_t n = 0;
	int rows_n, wanted;

	do {
		PGresult *page;

		wanted = count - n < PAGE ? (int)(count - n) : PAGE;
		page = db_ask(db, sql, postgres_number(after), postgres_number(wanted));
		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++)
			take(context, page, row);
		if (rows_n > 0)
			after = strtoll(PQgetvalue(page, rows_n - 1, 0), NULL, 10);
		n += rows_n;
		PQclear(page);
	} while (rows_n == wanted && n < count);
	return n;
}

void store_redis_check(const struct redis_client *redis, int ok)
{
	if (!ok)
		log_fatal_as(CTL_AWAY, "Redis: %s", redis_client_error(redis));
}

redisReply *store_reply(const struct redis_client *redis, redisReply *reply)
{
	store_redis_check(redis, reply != NULL);
	return reply;
}

void store_has(struct redis_client *redis, int64_t coupon, enum coupon_key which,
	       const struct slot *slots, size_t n, char *has)
{
	store_redis_check(redis, coupon_has(redis, coupon, which, slots, n, has) == 0);
}

void store_run_id_read(struct redis_client *redis, char run_id[REDIS_RUN_ID_SIZE])
{
	int64_t uptime_s;

	store_redis_check(redis, redis_client_process(redis, run_id, &uptime_s) == 0);
}

/* The reply to HGET of a field that may be missing; NULL: it is. To be freed. */
static redisReply *field_read(struct redis_client *redis, const char *key, const char *field)
{
	const char *hget[] = { "HGET", key, field };
	redisReply *reply = store_reply(redis, redis_client_call(redis, 3, hget));

	if (reply->type == REDIS_REPLY_STRING)
		return reply;
	freeReplyObject(reply);
	return NULL;
}

cJSON *store_gateways_lacking(struct db *db, struct redis_client *redis)
{
	cJSON *gateways = checked(cJSON_CreateArray());
	PGresult *rows = db_ask(db, sql_query_gateway_running);
	char run_id[REDIS_RUN_ID_SIZE];

	store_run_id_read(redis, run_id);
	for (int i = 0; i < PQntuples(rows); i++) {
		const char *id = column_text(rows, i, "id");
		int64_t silent_s = column_number(rows, i, "silent_s");
		redisReply *receives = field_read(redis, UNCOPIED_KEY, id),
			   *mark = field_read(redis, GATEWAYS_KEY, id);
		int has_reported = mark && strncmp(mark->str, run_id, REDIS_PROCESS_LEN) == 0;

		if ((receives || !has_reported) && silent_s <= COPIES_SILENT_S) {
			cJSON *gateway = output_object();

			output_text(gateway, "gateway", column_text(rows, i, "place"));
			if (receives)
				output_number(gateway, "receives", redis_reply_number(receives));
			output_number(gateway, "silent_s", silent_s);
			check(cJSON_AddItemToArray(gateways, gateway));
		}
		freeReplyObject(receives);
		freeReplyObject(mark);
	}
	PQclear(rows);
	return gateways;
}

char *store_gateways_text(const cJSON *gateways, char out[STORE_GATEWAYS_SIZE])
{
	const cJSON *gateway;
	size_t len = 0;

	*out = '\0';
	cJSON_ArrayForEach(gateway, gateways)
	{
		const char *place = cJSON_GetStringValue(cJSON_GetObjectItem(gateway, "gateway"));
		const cJSON *receives = cJSON_GetObjectItem(gateway, "receives");
		const cJSON *silent_s = cJSON_GetObjectItem(gateway, "silent_s");
		int n;

		if (receives)
			n = snprintf(out + len, STORE_GATEWAYS_SIZE - len, "%s%s (%s receives)",
				     len ? ", " : "", place, receives->valuestring);
		else
			n = snprintf(out + len, STORE_GATEWAYS_SIZE - len,
				     "%s%s (not reported, last heard of %s s ago)", len ? ", " : "",
				     place, silent_s->valuestring);
		len += (size_t)n;
		if (len >= STORE_GATEWAYS_SIZE)
			break;
	}
	return out;
}

#define NEWS_POLL_US 20000
#define NEWS_PLACES_SIZE 1024
/*
 * A process writes its row every 5 s. One that PostgreSQL had not heard of for longer when the wait
 * began has ended. One that falls silent during the wait may have lost PostgreSQL alone.
 */
#define NEWS_HEARD_S 7

/*
 * Writes into `places` the places of the gateways that do not know the change. Returns 1 if one of
 * them may still report that it knows it; 0 if none will; -1 if Redis has failed.
 */
static int news_look(struct db *db, struct redis_client *redis, enum store_news kind, int64_t news,
		     int64_t waited_s, char places[NEWS_PLACES_SIZE])
{
	int64_t heard_s = kind == STORE_NEWS_KEYS ? COPIES_SILENT_S : NEWS_HEARD_S;
	PGresult *rows = db_ask(db, sql_query_gateway_running);
	int more = 0;

	*places = '\0';
	for (int row = 0; more >= 0 && row < PQntuples(rows); row++) {
		const char *hget[] = { "HGET", KNOWS_KEY, column_text(rows, row, "id") };
		int64_t silent_s = column_number(rows, row, "silent_s") - waited_s;
		int64_t numbers[3] = { 0 };
		redisReply *knows = redis_client_call(redis, 3, hget);
		size_t len = strlen(places);
		char silence[64] = "";

		if (!knows)
			more = -1;
		else if (knows->type == REDIS_REPLY_STRING)
			(void)sscanf(knows->str, "%" SCNd64 " %" SCNd64 " %" SCNd64, &numbers[0],
				     &numbers[1], &numbers[2]);
		freeReplyObject(knows);
		if (more < 0 || numbers[kind] >= news || silent_s > heard_s)
			continue;
		if (silent_s > NEWS_HEARD_S)
			snprintf(silence, sizeof(silence), " (last heard of %lld s ago)",
				 (long long)silent_s);
		snprintf(places + len, NEWS_PLACES_SIZE - len, "%s%s%s", len ? ", " : "",
			 column_text(rows, row, "place"), silence);
		more |= silent_s <= NEWS_HEARD_S;
	}
	PQclear(rows);
	return more;
}

int store_gateways_wait(struct db *db, struct redis_client *redis, enum store_news kind)
{
	int64_t begin_ms = clock_monotonic_ms(), waited_ms = 0, news = 0;
	char places[NEWS_PLACES_SIZE] = "", begin[NUMBER_SIZE];
	/* A Redis that has lost its data does not give a number twice: it begins at the time. */
	const char *hsetnx[] = { "HSETNX", GATEWAYS_KEY, GATEWAYS_NEWS,
				 number_text(clock_wall_ms(), begin) };
	const char *hincrby[] = { "HINCRBY", GATEWAYS_KEY, GATEWAYS_NEWS, "1" };
	redisReply *reply = redis_client_call(redis, 4, hsetnx);
	int more;

	/* The change gets the next number; without one Redis has failed. */
	if (reply) {
		freeReplyObject(reply);
		reply = redis_client_call(redis, 4, hincrby);
	}
	if (reply)
		news = reply->integer;
	freeReplyObject(reply);

	more = news > 0 ? 1 : -1;
	while (more > 0 && waited_ms < STORE_NEWS_WAIT_MS) {
		/* A second more: what PostgreSQL and this process count is rounded. */
		more = news_look(db, redis, kind, news, waited_ms / 1000 + 1, places);
		if (more > 0)
			usleep(NEWS_POLL_US);
		waited_ms = clock_monotonic_ms() - begin_ms;
	}
	if (more >= 0 && !*places)
		return 0;
	if (more < 0)
		say_warning("the change is made, but it is unknown whether all "
			    "gateways know it: %s",
			    redis_client_error(redis));
	else
		say_warning("the change is made, but gateways may answer as "
			    "before, "
			    "because they have not told that they know it: %s",
			    places);
	return CTL_UNKNOWN;
}
