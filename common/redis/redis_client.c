#include "common/redis/redis_client.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis_tls.h"
#include "common/thread.h"
#include "embed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_SIZE SENTINEL_ERROR_SIZE
#define EVAL_HEAD 3 /* EVAL or EVALSHA, the script, how many keys */
#define PREPARED_MAX 8
#define MASTER_CONNECT_MS 500 /* to connect under Sentinels */

struct prepared {
	const char *script;
	char sha[REDIS_SHA_SIZE];
};

struct redis_client {
	char *url_text;
	struct redis_url url;
	struct sentinels *sentinels;   /* NULL: none */
	char host[SENTINEL_HOST_SIZE]; /* where it is or was connected */
	int port;
	redis_failed_fn *failed;
	redisContext *connection;               /* NULL: not connected */
	struct prepared prepared[PREPARED_MAX]; /* on this connection */
	size_t prepared_n;
	struct redis_handshake handshake;
	int is_logged_in;
	struct backoff told; /* failures of attempts to log in */
	char error[ERROR_SIZE];
};

struct redis_client *redis_client_new(const char *url, redis_failed_fn *failed)
{
	struct redis_client *client = checked(calloc(1, sizeof(*client)));

	redis_url_need(&client->url, url);
	client->handshake.url = &client->url;
	client->url_text = checked(strdup(url));
	client->failed = failed;
	if (client->url.sentinels_n > 0) {
		client->sentinels = sentinels_of(&client->url);
	} else {
		snprintf(client->host, sizeof(client->host), "%s", client->url.host);
		client->port = client->url.port;
	}
	return client;
}

struct redis_client *redis_client_twin(const struct redis_client *client)
{
	return redis_client_new(client->url_text, client->failed);
}

void redis_client_close(struct redis_client *client)
{
	if (client->connection)
		redisFree(client->connection);
	client->connection = NULL;
	client->prepared_n = 0;
	client->is_logged_in = 0;
}

void redis_client_free(struct redis_client *client)
{
	if (!client)
		return;
	redis_client_close(client);
	redis_url_fini(&client->url);
	free(client->url_text);
	free(client);
}

int redis_client_is_open(const struct redis_client *client)
{
	return client->connection != NULL;
}

int redis_client_fd(const struct redis_client *client)
{
	return client->connection->fd;
}

const char *redis_client_error(const struct redis_client *client)
{
	return client->error;
}

static void fail(struct redis_client *client, enum redis_failure failure, const char *why)
{
	int is_told = client->is_logged_in ||
		      backoff_tells(&client->told, why, clock_monotonic_ms());

	snprintf(client->error, sizeof(client->error), "%s", why);
	if (failure != REDIS_REFUSED)
		redis_client_close(client);
	if (client->failed && is_told)
		client->failed(failure, client->error);
}

static const char *connection_error(const redisContext *connection)
{
	if (connection->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK))
		return "no reply in time";
	return connection->err ? connection->errstr : "no reply";
}

void redis_client_append(struct redis_client *client, int argc, const char **argv)
{
	if (client->connection)
		check(redisAppendCommandArgv(client->connection, argc, argv, NULL) == REDIS_OK);
}

redisReply *redis_client_next(struct redis_client *client)
{
	void *next = NULL;
	redisReply *reply;

	if (!client->connection)
		return NULL;
	if (redisGetReply(client->connection, &next) != REDIS_OK || !next) {
		fail(client, REDIS_LOST, connection_error(client->connection));
		return NULL;
	}
	reply = next;
	if (reply->type != REDIS_REPLY_ERROR)
		return reply;
	if (strncmp(reply->str, "NOSCRIPT", 8) == 0)
		client->prepared_n = 0; /* they were removed from Redis */
	fail(client, redis_error_is_of_server(reply->str) ? REDIS_LOST : REDIS_REFUSED, reply->str);
	freeReplyObject(reply);
	return NULL;
}

redisReply *redis_client_call(struct redis_client *client, int argc, const char **argv)
{
	redis_client_append(client, argc, argv);
	return redis_client_next(client);
}

/* Frees the reply. 0, or -1: it is NULL, or of another form than expected, which is a refusal. */
static int reply_end(struct redis_client *client, redisReply *reply, const char *command,
		     int is_other)
{
	char why[ERROR_SIZE];

	if (!reply)
		return -1;
	if (is_other) {
		snprintf(why, sizeof(why), "%s replied something else", command);
		fail(client, REDIS_REFUSED, why);
	}
	freeReplyObject(reply);
	return is_other ? -1 : 0;
}

int redis_client_integer(struct redis_client *client, int argc, const char **argv, int64_t *n)
{
	redisReply *reply = redis_client_call(client, argc, argv);
	int is_integer = reply && reply->type == REDIS_REPLY_INTEGER;

	if (is_integer)
		*n = reply->integer;
	return reply_end(client, reply, argv[0], !is_integer);
}

/* Runs the steps of a handshake. 0, or -1: it has failed. */
static int handshake(struct redis_client *client, enum redis_step first, enum redis_step last)
{
	struct redis_handshake *handshake = &client->handshake;
	const char *words[REDIS_HANDSHAKE_WORDS];
	void *reply = NULL;
	int n;

	redis_handshake_begin(handshake, first, last);
	while ((n = redis_handshake_next(handshake, reply, words)) > 0) {
		freeReplyObject(reply);
		reply = NULL;
		redis_client_append(client, n, words);
		if (redisGetReply(client->connection, &reply) != REDIS_OK) {
			fail(client, REDIS_LOST, connection_error(client->connection));
			return -1;
		}
	}
	freeReplyObject(reply);
	if (n < 0)
		fail(client,
		     handshake->is_replica   ? REDIS_UNREACHABLE
		     : handshake->is_refused ? REDIS_REFUSED
					     : REDIS_LOST,
		     handshake->why);
	return n;
}

/* Reads what the Sentinels say. 0, or -1: it is another master than the connected one. */
static int master_read(const struct redis_client *client, struct sentinels_view *view)
{
	char error[SENTINEL_ERROR_SIZE];

	return sentinels_view(client->sentinels, 0, view, error) || view->port != client->port ||
			       strcmp(view->host, client->host) != 0
		       ? -1
		       : 0;
}

int redis_client_is_followed(const struct redis_client *client)
{
	struct sentinels_view view;

	return !client->sentinels || (master_read(client, &view) == 0 && view.is_agreed);
}

int redis_client_open(struct redis_client *client)
{
	char error[ERROR_SIZE], why[TRUST_ERROR_SIZE];
	struct sentinels_view view;

	if (client->sentinels && client->connection && master_read(client, &view) && view.is_agreed)
		fail(client, REDIS_LOST, "the Sentinels name another master");
	if (client->connection)
		return 0;

	if (client->sentinels) {
		if (sentinels_view(client->sentinels, REDIS_CLIENT_TIMEOUT_MS, &view, error)) {
			fail(client, REDIS_UNREACHABLE, error);
			return -1;
		}
		memcpy(client->host, view.host, sizeof(client->host));
		client->port = view.port;
	}
	/* A master that is gone may be another one at the next attempt. */
	client->connection = redis_connect(client->host, client->port, client->url.is_tls,
					   client->sentinels ? MASTER_CONNECT_MS
							     : REDIS_CLIENT_TIMEOUT_MS,
					   REDIS_CLIENT_TIMEOUT_MS, why);
	if (!client->connection) {
		fail(client, REDIS_UNREACHABLE, why);
		return -1;
	}

	/* A Sentinel that was cut off may name what is a replica by now. */
	if (handshake(client, REDIS_STEP_AUTH,
		      client->sentinels ? REDIS_STEP_PROCESS : REDIS_STEP_SELECT)) {
		redis_client_close(client);
		return -1;
	}
	client->is_logged_in = 1;
	backoff_reset(&client->told);
	return 0;
}

void redis_word_take(redisReply *reply, char word[REDIS_WORD_SIZE])
{
	word[0] = '\0';
	if (!reply)
		return;
	redis_reply_word(reply, word);
	freeReplyObject(reply);
}

void redis_client_flush(struct redis_client *client)
{
	int done = 0;

	while (client->connection && !done)
		if (redisBufferWrite(client->connection, &done) != REDIS_OK)
			fail(client, REDIS_LOST, connection_error(client->connection));
}

/* The entry of a script that was prepared, or NULL. */
static const struct prepared *prepared_find(const struct redis_client *client, const char *script)
{
	for (size_t i = 0; i < client->prepared_n; i++)
		if (client->prepared[i].script == script)
			return &client->prepared[i];
	return NULL;
}

void redis_client_prepare(struct redis_client *client, const char *script)
{
	const char *load[] = { "SCRIPT", "LOAD", script };
	struct prepared *prepared = &client->prepared[client->prepared_n];
	redisReply *reply;

	if (client->prepared_n == PREPARED_MAX || prepared_find(client, script))
		return;
	reply = redis_client_call(client, 3, load);
	if (reply && reply->type == REDIS_REPLY_STRING && reply->len < REDIS_SHA_SIZE) {
		prepared->script = script;
		memcpy(prepared->sha, reply->str, (size_t)reply->len + 1);
		client->prepared_n++;
	}
	if (reply)
		freeReplyObject(reply);
}

void redis_client_prepared_end(struct redis_client *client)
{
	client->prepared_n = 0;
}

void redis_client_append_eval(struct redis_client *client, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv)
{
	const struct prepared *prepared = prepared_find(client, script);
	const char *words[EVAL_HEAD + REDIS_CLIENT_KEYS_MAX + REDIS_CLIENT_ARGS_MAX];
	char keys_text[NUMBER_SIZE];

	check(keys_n <= REDIS_CLIENT_KEYS_MAX && argc <= REDIS_CLIENT_ARGS_MAX);
	words[0] = prepared ? "EVALSHA" : "EVAL";
	words[1] = prepared ? prepared->sha : script;
	words[2] = number_text(keys_n, keys_text);
	memcpy(words + EVAL_HEAD, keys, (size_t)keys_n * sizeof(*keys));
	if (argc > 0)
		memcpy(words + EVAL_HEAD + keys_n, argv, (size_t)argc * sizeof(*argv));
	redis_client_append(client, EVAL_HEAD + keys_n + argc, words);
}

void redis_client_append_coupon_eval(struct redis_client *client, const char *script,
				     int64_t coupon, unsigned keys, int argc, const char **argv)
{
	struct coupon_keys names;

	coupon_keys_make(&names, coupon, keys);
	redis_client_append_eval(client, script, names.n, names.names, argc, argv);
}

redisReply *redis_client_eval(struct redis_client *client, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv)
{
	redis_client_append_eval(client, script, keys_n, keys, argc, argv);
	return redis_client_next(client);
}

redisReply *redis_client_coupon_eval(struct redis_client *client, const char *script,
				     int64_t coupon, unsigned keys, int argc, const char **argv)
{
	redis_client_append_coupon_eval(client, script, coupon, keys, argc, argv);
	return redis_client_next(client);
}

static void words_append(struct redis_client *client, const struct redis_words *command)
{
	const char *argv[8];
	int argc = 0;

	for (; command->words[argc]; argc++)
		argv[argc] = command->words[argc];
	redis_client_append(client, argc, argv);
}

redisReply *redis_client_transaction(struct redis_client *client,
				     const struct redis_words *commands, size_t n)
{
	redisReply *reply;

	words_append(client, &(struct redis_words){ { "MULTI" } });
	for (size_t i = 0; i < n; i++)
		words_append(client, &commands[i]);
	words_append(client, &(struct redis_words){ { "EXEC" } });
	for (size_t i = 0; i < n + 1; i++) { /* OK, then QUEUED for each */
		reply = redis_client_next(client);
		if (!reply) {
			redis_client_close(client); /* the other replies have no use */
			return NULL;
		}
		freeReplyObject(reply);
	}
	reply = redis_client_next(client);
	if (!reply || (reply->type == REDIS_REPLY_ARRAY && reply->elements == n))
		return reply;
	reply_end(client, reply, "EXEC", 1);
	return NULL;
}

redisReply *redis_client_hscan(struct redis_client *client, const char *key,
			       char cursor[REDIS_CURSOR_SIZE], int count)
{
	char number[NUMBER_SIZE];
	const char *argv[] = { "HSCAN", key, cursor, "COUNT", number_text(count, number) };
	redisReply *reply = redis_client_call(client, 5, argv);

	if (!reply)
		return NULL;
	if (!redis_reply_is_scan(reply)) {
		reply_end(client, reply, "HSCAN", 1);
		return NULL;
	}
	snprintf(cursor, REDIS_CURSOR_SIZE, "%s", reply->element[0]->str);
	return reply;
}

int redis_client_process(struct redis_client *client, char run_id[REDIS_RUN_ID_SIZE],
			 int64_t *uptime_s)
{
	if (!client->connection || handshake(client, REDIS_STEP_LEASE, REDIS_STEP_PROCESS))
		return -1;
	memcpy(run_id, client->handshake.run_id, REDIS_RUN_ID_SIZE);
	*uptime_s = client->handshake.uptime_s;
	return 0;
}

int redis_client_writes(struct redis_client *client, int64_t *writes)
{
	const char *info[] = { "INFO", "persistence" };
	redisReply *reply = redis_client_call(client, 2, info);

	return reply_end(client, reply, "INFO", reply && redis_reply_writes(reply, writes));
}

int redis_client_time_ms(struct redis_client *client, int64_t *now_ms)
{
	const char *time[] = { "TIME" };
	redisReply *reply = redis_client_call(client, 1, time);

	return reply_end(client, reply, "TIME", reply && redis_reply_time_ms(reply, now_ms));
}

/*
 * The lease of a master. It is kept by a thread of its own:
 *
 *	read Redis' clock ──▶ a majority of the Sentinels, asked after that, names it ──▶ extend
 */

#define LEASE_STEP_MS 200

struct master_lease {
	struct redis_client *redis;
	int64_t term; /* the last one that was told; 0: none */
	/* Redis' clock, and when it was read; 0: it was not read on this connection. */
	int64_t from_ms, read_ms;
	char run_id[REDIS_RUN_ID_SIZE]; /* read with it */
};

/* What lease_failed() has told since the lease was extended. For the thread of the lease alone. */
static char failure_told[SENTINEL_ERROR_SIZE];

/* Tells each reason once. */
static void lease_failed(enum redis_failure failure, const char *why)
{
	if (strcmp(failure_told, why) == 0)
		return;
	snprintf(failure_told, sizeof(failure_told), "%s", why);
	log_warn("redis_lease_error", LOG_S("why", why),
		 LOG_S("kind", failure == REDIS_REFUSED ? "refused" : "lost"));
}

static void lease_extend(struct master_lease *lease, int may_begin)
{
	char process[REDIS_PROCESS_LEN + 1], from[NUMBER_SIZE], length[NUMBER_SIZE];
	const char *keys[] = { MASTER_LEASE_KEY };
	const char *argv[] = { process, number_text(lease->from_ms, from),
			       number_text(MASTER_LEASE_MS, length), may_begin ? "1" : "0" };
	char word[REDIS_WORD_SIZE];
	int64_t term;
	redisReply *reply;

	snprintf(process, sizeof(process), "%.*s", REDIS_PROCESS_LEN, lease->run_id);
	reply = redis_client_eval(lease->redis, lua_master_lease, 1, keys, 4, argv);
	if (!reply)
		return;
	*failure_told = '\0';
	redis_reply_word(reply, word);
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
		term = redis_reply_number(reply->element[1]);
		if (strcmp(word, "begun") == 0)
			log_info("redis_lease_begun", LOG_I("term", term),
				 LOG_S("run_id", lease->run_id));
		else if (strcmp(word, "over") == 0 && term > 0 && lease->term == term)
			log_warn("redis_lease_over", LOG_I("term", term),
				 LOG_S("run_id", lease->run_id));
		lease->term = strcmp(word, "over") == 0 ? 0 : term;
	}
	freeReplyObject(reply);
}

static void *lease_run(void *argument)
{
	struct master_lease *lease = argument;
	struct sentinels_view view;
	int64_t uptime_s;

	for (;; usleep(LEASE_STEP_MS * 1000)) {
		if (redis_client_open(lease->redis) || master_read(lease->redis, &view) ||
		    !view.is_agreed) {
			lease->read_ms = 0;
			continue;
		}
		if (lease->read_ms && view.asked_ms < lease->read_ms)
			continue;
		if (lease->read_ms)
			lease_extend(lease,
				     clock_monotonic_ms() - view.since_ms >= MASTER_LEASE_WAIT_MS);

		/* Sentinels that are asked from now on are asked after the clock was read. */
		lease->read_ms = 0;
		if (redis_client_process(lease->redis, lease->run_id, &uptime_s) == 0 &&
		    redis_client_time_ms(lease->redis, &lease->from_ms) == 0)
			lease->read_ms = clock_monotonic_ms();
	}
	return NULL;
}

void master_lease_keep(const char *redis_url)
{
	struct master_lease *lease;

	if (!redis_url_has_sentinels(redis_url))
		return;
	lease = checked(calloc(1, sizeof(*lease)));
	lease->redis = redis_client_new(redis_url, lease_failed);
	check(thread_detach(lease_run, lease) == 0);
}

#define HEAD_ARGS 5

enum redis_revoked redis_revoke(struct redis_client *redis,
				const struct redis_revocation *revocation, int is_last, size_t n,
				const char *const *codes, int64_t *seq)
{
	char generation[NUMBER_SIZE], from[NUMBER_SIZE], to[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[HEAD_ARGS + REDIS_REVOKE_CODES_MAX] = {
		revocation->run_id, number_text(revocation->generation, generation),
		number_text(revocation->from, from), number_text(revocation->to, to),
		is_last ? "1" : "0"
	};
	redisReply *reply;

	check(n <= REDIS_REVOKE_CODES_MAX);
	for (size_t i = 0; i < n; i++)
		argv[HEAD_ARGS + i] = codes[i];
	reply = redis_client_coupon_eval(redis, lua_revoke, revocation->coupon,
					 COUPON_KEY_COUPON | COUPON_KEY_CODES, HEAD_ARGS + (int)n,
					 argv);
	if (reply && reply->type == REDIS_REPLY_ARRAY) {
		*seq = reply->elements == 3 ? reply->element[2]->integer : -1;
		freeReplyObject(reply);
		return REDIS_REVOKED_DONE;
	}
	redis_word_take(reply, word);
	if (strcmp(word, "missing") == 0)
		return REDIS_REVOKED_MISSING;
	return strcmp(word, "behind") == 0 ? REDIS_REVOKED_BEHIND : REDIS_REVOKED_FAILED;
}

size_t redis_code_user(const redisReply *value)
{
	const char *space;

	if (value->type != REDIS_REPLY_STRING)
		return 0;
	space = memchr(value->str, ' ', value->len);
	return space ? (size_t)(space - value->str) : value->len;
}

int redis_code_is_revoked(const redisReply *value)
{
	return value->type == REDIS_REPLY_STRING &&
	       (value->len == 0 || value->str[value->len - 1] == ' ');
}
