/*
 * The thread owns the connections to the stores. The keys and the sessions have one lock, which is
 * never held while a store is waited for.
 */
#include "admin/auth.h"

#include "admin/metrics.h"
#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "common/redis/redis.h"
#include "common/redis/redis_client.h"
#include "common/thread.h"
#include "embed.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 3000
#define COMPARE_EVERY_MS 1000
#define SESSIONS_MAX 1000
#define SESSIONS_OF_KEY_MAX 50 /* so that no key ends the sessions of others */
#define SECRET_BYTES 32
#define USES_MAX 64 /* a use is not noted if as many other keys were used */
#define USES_EVERY_MS 10000

struct console_session {
	unsigned char sha256[SHA256_DIGEST_LENGTH]; /* of what the cookie has */
	char token[SESSION_TEXT_SIZE];
	struct key_grant grant; /* .key NULL: the place is free */
	int64_t begin_ms, seen_ms;
	int64_t ends_ms; /* by the wall clock, for people */
};

struct auth {
	const struct config *config;
	struct proxy_users *users; /* they never change */
	struct thread thread;
	pthread_mutex_t lock;
	struct key_watch watch;
	struct key_look look;
	struct console_session sessions[SESSIONS_MAX];
	struct key_last_use uses[USES_MAX]; /* that Redis is not told of yet */
	size_t uses_n;

	/* The thread's. */
	struct postgres *postgres;
	struct redis_client *redis;
	int redis_is_lost;
	enum relation relation;
};

/* ---- the thread */

static PGresult *rows_ask(struct auth *auth, const char *sql, int n,
			  const struct postgres_argument *arguments)
{
	static const struct postgres_patience patience = { .timeout_ms = TIMEOUT_MS };

	return postgres_up(auth->postgres) || postgres_open(auth->postgres) == 0
		       ? postgres_ask(auth->postgres, sql, n, arguments, &patience)
		       : NULL;
}

static redisReply *reply_ask(struct auth *auth, enum key_read read)
{
	const char *words[KEY_READ_WORDS];
	redisReply *reply = NULL;

	if (redis_client_open(auth->redis) == 0)
		reply = redis_client_call(auth->redis, key_read_words(read, words), words);
	if (!reply && !auth->redis_is_lost) /* once, until it answers again */
		log_warn("redis_lost", LOG_S("error", redis_client_error(auth->redis)));
	auth->redis_is_lost = !reply;
	return reply;
}

/* The relation of Redis to PostgreSQL, as far as both tell. */
static void stores_compare(struct auth *auth)
{
	PGresult *rows = rows_ask(auth, sql_query_change_counts, 0, NULL);
	enum relation before = auth->relation;
	struct changes changes, copy;

	if (rows && redis_client_open(auth->redis) == 0 &&
	    changes_copy_read(&copy, auth->redis) == 0) {
		changes_take(&changes, rows);
		auth->relation = changes_relate(before, &changes, &copy);
		relation_log(before, auth->relation, &changes, &copy);
	}
	PQclear(rows);
}

/* Tells Redis which keys were used since. A use that it does not get is lost. */
static void uses_tell(struct auth *auth)
{
	struct key_last_use uses[USES_MAX];
	char numbers[USES_MAX][NUMBER_SIZE];
	const char *argv[2 + 2 * USES_MAX] = { "HSET", KEYS_USED_KEY };
	size_t n = auth->uses_n;

	memcpy(uses, auth->uses, n * sizeof(uses[0]));
	auth->uses_n = 0;
	pthread_mutex_unlock(&auth->lock);
	for (size_t i = 0; i < n; i++) {
		argv[2 + 2 * i] = uses[i].id;
		argv[3 + 2 * i] = number_text(uses[i].ms, numbers[i]);
	}
	if (redis_client_open(auth->redis) == 0)
		freeReplyObject(redis_client_call(auth->redis, 2 + 2 * (int)n, argv));
	pthread_mutex_lock(&auth->lock);
}

static void *run(void *data)
{
	struct auth *auth = data;
	int64_t compare_ms = 0, uses_ms = 0;

	stores_compare(auth);
	pthread_mutex_lock(&auth->lock);
	while (!auth->thread.stops) {
		int64_t due_ms = key_look_due_ms(&auth->look);
		int is_foreign = auth->relation == RELATION_FOREIGN, has_rows = 0;
		enum key_read read;

		if (clock_monotonic_ms() < due_ms) { /* a question brings it forward */
			pthread_mutex_unlock(&auth->lock);
			thread_pause(&auth->thread, due_ms, NULL, 0);
			pthread_mutex_lock(&auth->lock);
			continue;
		}
		auth->watch.is_foreign = is_foreign;
		read = key_look_begin(&auth->look, clock_monotonic_ms());
		while (read != KEY_READ_NOTHING) {
			redisReply *reply = NULL;
			PGresult *rows = NULL;

			pthread_mutex_unlock(&auth->lock);
			if (read == KEY_READ_ROWS)
				rows = rows_ask(auth, sql_query_key_news,
						POSTGRES_ARGUMENTS(postgres_number(auth->look.from),
								   postgres_number(KEY_ROWS_MAX)));
			else
				reply = reply_ask(auth, read);
			pthread_mutex_lock(&auth->lock);
			read = read == KEY_READ_ROWS
				       ? key_look_rows(&auth->look, rows, clock_monotonic_ms())
				       : key_look_reply(&auth->look, reply, clock_monotonic_ms());
			has_rows = rows != NULL;
			freeReplyObject(reply);
			PQclear(rows);
		}

		/* Not while PostgreSQL hangs: Redis is not to wait for it once more. */
		if ((is_foreign || has_rows) && clock_monotonic_ms() >= compare_ms) {
			pthread_mutex_unlock(&auth->lock);
			stores_compare(auth);
			compare_ms = clock_monotonic_ms() + COMPARE_EVERY_MS;
			pthread_mutex_lock(&auth->lock);
		}
		/* Not while Redis hangs: the next look is not to wait for it once more. */
		if (auth->uses_n > 0 && !auth->redis_is_lost &&
		    relation_is_followed(auth->relation) && clock_monotonic_ms() >= uses_ms) {
			uses_tell(auth);
			uses_ms = clock_monotonic_ms() + USES_EVERY_MS;
		}
	}
	pthread_mutex_unlock(&auth->lock);
	return NULL;
}

struct auth *auth_start(const struct config *config)
{
	struct auth *auth = checked(calloc(1, sizeof(*auth)));

	auth->config = config;
	auth->users = proxy_users_new(config);
	auth->watch = (struct key_watch){ .keys = keys_new(),
					  .stale_ms = config->keys_stale_s * 1000 };
	auth->look = (struct key_look){ .watch = &auth->watch, .kind = KEY_LOOK_BOTH };
	check(pthread_mutex_init(&auth->lock, NULL) == 0);
	auth->redis = redis_client_new(config->redis_url, NULL);
	auth->postgres = postgres_new(
		&(struct postgres_options){ .url = config->database_url,
					    .application_name = "coupon-admin",
					    .connect_timeout_ms = TIMEOUT_MS,
					    .statement_timeout_ms = TIMEOUT_MS,
					    .lost_event = "database_lost",
					    .unreachable_event = "database_lost",
					    .refused_event = "lookup_failed" });
	thread_start(&auth->thread, run, auth);
	return auth;
}

void auth_stop(struct auth *auth)
{
	thread_stop(&auth->thread);
	postgres_free(auth->postgres);
	redis_client_free(auth->redis);
	keys_free(auth->watch.keys);
	proxy_users_free(auth->users);
	pthread_mutex_destroy(&auth->lock);
	OPENSSL_cleanse(auth, sizeof(*auth));
	free(auth);
}

uint64_t auth_ask(struct auth *auth, enum auth_answer why)
{
	uint64_t question;

	pthread_mutex_lock(&auth->lock);
	question = key_watch_ask(&auth->watch, why == AUTH_KNOWN);
	pthread_mutex_unlock(&auth->lock);
	thread_wake(&auth->thread);
	return question;
}

int auth_told(struct auth *auth, uint64_t question)
{
	int told;

	pthread_mutex_lock(&auth->lock);
	told = key_watch_told(&auth->watch, question);
	pthread_mutex_unlock(&auth->lock);
	return told;
}

/* ---- what is presented; all under the lock */

static const enum auth_answer answers[] = { [KEY_ACCEPTED] = AUTH_OK,
					    [KEY_REFUSED] = AUTH_NOBODY,
					    [KEY_MAY_BE_NEW] = AUTH_NEW,
					    [KEY_UNTOLD] = AUTH_UNAVAILABLE };

static enum auth_answer key_find(struct auth *auth, const char *text, int is_asked,
				 struct key_grant *grant)
{
	enum key_judgement judgement = key_watch_find(&auth->watch, text, strlen(text), is_asked,
						      clock_monotonic_ms(), clock_wall_ms(), grant);

	if (judgement == KEY_REFUSED)
		metrics_add(METRIC_KEYS_REFUSED, 1);
	return judgement == KEY_ACCEPTED && !is_asked ? AUTH_KNOWN : answers[judgement];
}

static enum auth_answer grant_check(const struct auth *auth, struct key_grant *grant)
{
	return answers[key_watch_check(&auth->watch, grant, clock_monotonic_ms(), clock_wall_ms())];
}

static int session_is_over(const struct auth *auth, const struct console_session *session,
			   int64_t now_ms)
{
	return now_ms - session->begin_ms >= auth->config->admin_session_s * 1000 ||
	       now_ms - session->seen_ms >= SESSION_IDLE_S * 1000LL;
}

static struct console_session *session_find(struct auth *auth, const char *text)
{
	unsigned char sha256[SHA256_DIGEST_LENGTH];
	int64_t now_ms = clock_monotonic_ms();

	SHA256((const unsigned char *)text, strlen(text), sha256);
	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		struct console_session *session = &auth->sessions[i];

		if (session->grant.key &&
		    CRYPTO_memcmp(sha256, session->sha256, sizeof(sha256)) == 0)
			return session_is_over(auth, session, now_ms) ? NULL : session;
	}
	return NULL;
}

/* The session with this token: it has not ended since. */
static int session_goes_on(const struct auth *auth, const char *token)
{
	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		const struct console_session *session = &auth->sessions[i];

		if (session->grant.key &&
		    CRYPTO_memcmp(token, session->token, sizeof(session->token)) == 0)
			return !session_is_over(auth, session, clock_monotonic_ms());
	}
	return 0;
}

static enum auth_answer session_check(struct auth *auth, const struct credentials *credentials,
				      int is_change, struct console_session **found)
{
	struct console_session *session = session_find(auth, credentials->session);
	const char *token = credentials->token ? credentials->token : "";
	enum auth_answer answer;

	if (!session)
		return AUTH_NOBODY;
	answer = grant_check(auth, &session->grant);
	if (answer == AUTH_NOBODY)
		OPENSSL_cleanse(session, sizeof(*session));
	if (answer != AUTH_OK)
		return answer;
	if (is_change && (strlen(token) != strlen(session->token) ||
			  CRYPTO_memcmp(token, session->token, strlen(token)) != 0))
		return AUTH_UNPROVED;
	if (!credentials->is_asked)
		return AUTH_KNOWN;
	session->seen_ms = clock_monotonic_ms();
	*found = session;
	return AUTH_OK;
}

_Static_assert(KEY_ROLE_MONITOR < KEY_ROLE_CAMPAIGN && KEY_ROLE_CAMPAIGN < KEY_ROLE_ADMIN,
	       "a role of coupon-admin may do what those below it may");

int auth_may(unsigned roles, unsigned needed)
{
	unsigned own = roles & (KEY_ROLE_MONITOR | KEY_ROLE_CAMPAIGN | KEY_ROLE_ADMIN);

	return own > 0 && own >= needed;
}

const char *auth_role_name(unsigned roles)
{
	return auth_may(roles, KEY_ROLE_ADMIN)      ? "admin"
	       : auth_may(roles, KEY_ROLE_CAMPAIGN) ? "campaign"
						    : "monitor";
}

/* `key` NULL: it is a user of a proxy, who has no coupons alone. */
static int is_allowed(unsigned roles, const struct api_key *key, unsigned role,
		      const struct auth_about *about)
{
	int64_t id;

	if (!auth_may(roles, role))
		return 0;
	if (role == 0 || !key || !key->coupons)
		return 1;
	if (!about || (!about->coupon && !about->budget))
		return 0;
	if (about->coupon &&
	    (id_parse(about->coupon, strlen(about->coupon), &id) || !key_has_coupon(key, id)))
		return 0;
	return !about->budget || key_has_budget(key, about->budget);
}

static void use_note(struct auth *auth, const char *id)
{
	struct key_last_use *use = auth->uses;

	while (use < auth->uses + auth->uses_n && strcmp(use->id, id) != 0)
		use++;
	if (use == auth->uses + USES_MAX)
		return;
	if (use == auth->uses + auth->uses_n)
		auth->uses_n++;
	memcpy(use->id, id, sizeof(use->id));
	use->ms = clock_wall_ms();
}

static void visitor_set(struct visitor *visitor, const struct key_grant *grant,
			const struct console_session *session)
{
	memset(visitor, 0, sizeof(*visitor));
	memcpy(visitor->by, grant->key->id, sizeof(grant->key->id));
	visitor->roles = grant->key->roles;
	visitor->grant = *grant;
	if (!session)
		return;
	memcpy(visitor->token, session->token, sizeof(visitor->token));
	visitor->ends_ms = session->ends_ms;
}

const char *auth_user_header(const struct auth *auth)
{
	return proxy_users_header(auth->users);
}

/* As for a session, a change needs the token: a browser may have sent it for a page of another. */
static enum auth_answer user_check(const struct auth *auth, const struct credentials *credentials,
				   int is_change, struct visitor *visitor)
{
	const char *token = credentials->token ? credentials->token : "";

	memset(visitor, 0, sizeof(*visitor));
	switch (proxy_users_find(auth->users, credentials->user, credentials->users_n,
				 credentials->from, &visitor->roles)) {
	case PROXY_USER_OK:
		break;
	case PROXY_USER_FROM_ELSEWHERE:
		return AUTH_NOT_PROXY;
	case PROXY_USER_WRONG:
		return AUTH_NO_NAME;
	}
	snprintf(visitor->by, sizeof(visitor->by), "%s", credentials->user);
	proxy_users_token(auth->users, visitor->by, visitor->token);
	if (is_change && (strlen(token) != strlen(visitor->token) ||
			  CRYPTO_memcmp(token, visitor->token, strlen(token)) != 0))
		return AUTH_UNPROVED;
	return AUTH_OK;
}

enum auth_answer auth_check(struct auth *auth, const struct credentials *credentials, unsigned role,
			    const struct auth_about *about, int is_change, struct visitor *visitor)
{
	enum auth_answer answer = AUTH_NOBODY;
	struct console_session *session = NULL;
	struct key_grant grant = { 0 };

	if (credentials->user) {
		answer = user_check(auth, credentials, is_change, visitor);
		return answer == AUTH_OK && !is_allowed(visitor->roles, NULL, role, about)
			       ? AUTH_FORBIDDEN
			       : answer;
	}
	pthread_mutex_lock(&auth->lock);
	if (credentials->key)
		answer = key_find(auth, credentials->key, credentials->is_asked, &grant);
	else if (credentials->session)
		answer = session_check(auth, credentials, is_change, &session);
	if (answer == AUTH_OK) {
		visitor_set(visitor, session ? &session->grant : &grant, session);
		use_note(auth, visitor->by);
		if (!is_allowed(visitor->roles, visitor->grant.key, role, about))
			answer = AUTH_FORBIDDEN;
	}
	pthread_mutex_unlock(&auth->lock);
	return answer;
}

enum auth_answer auth_check_again(struct auth *auth, struct visitor *visitor, unsigned role,
				  const struct auth_about *about)
{
	enum auth_answer answer;

	if (!visitor->grant.key) /* a proxy does not tell when it lets its user in no more */
		return is_allowed(visitor->roles, NULL, role, about) ? AUTH_OK : AUTH_FORBIDDEN;
	pthread_mutex_lock(&auth->lock);
	answer = grant_check(auth, &visitor->grant);
	if (answer == AUTH_OK && *visitor->token && !session_goes_on(auth, visitor->token))
		answer = AUTH_NOBODY;
	if (answer == AUTH_OK &&
	    !is_allowed(visitor->grant.key->roles, visitor->grant.key, role, about))
		answer = AUTH_FORBIDDEN;
	pthread_mutex_unlock(&auth->lock);
	return answer;
}

size_t auth_sessions_n(struct auth *auth)
{
	size_t n = 0;

	pthread_mutex_lock(&auth->lock);
	for (size_t i = 0; i < SESSIONS_MAX; i++)
		n += auth->sessions[i].grant.key &&
		     !session_is_over(auth, &auth->sessions[i], clock_monotonic_ms());
	pthread_mutex_unlock(&auth->lock);
	return n;
}

const char *auth_trouble(struct auth *auth)
{
	const char *trouble = NULL;

	pthread_mutex_lock(&auth->lock);
	if (auth->watch.is_foreign)
		trouble = RELATION_FOREIGN_TEXT;
	else if (!key_watch_knows(&auth->watch, clock_monotonic_ms()))
		trouble = KEYS_UNTOLD_TEXT;
	pthread_mutex_unlock(&auth->lock);
	return trouble;
}

/* ---- sessions */

/*
 * A place for a session of the key: a free one, or that of its session that was not used for
 * longest, if it has SESSIONS_OF_KEY_MAX. Where none is free, that which was not used for longest
 * of the key that has most: one that comes by ends no session of those who have few.
 */
static struct console_session *session_place(struct auth *auth, const struct api_key *key)
{
	int64_t now_ms = clock_monotonic_ms();
	struct console_session *place = NULL, *own = NULL, *worst = NULL;
	size_t own_n = 0, worst_n = 0;

	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		struct console_session *session = &auth->sessions[i];
		size_t of_key_n = 0;

		if (!session->grant.key || session_is_over(auth, session, now_ms)) {
			place = place ? place : session;
			continue;
		}
		if (session->grant.key == key) {
			own_n++;
			if (!own || session->seen_ms < own->seen_ms)
				own = session;
		}
		for (size_t j = 0; place == NULL && j < SESSIONS_MAX; j++)
			of_key_n += auth->sessions[j].grant.key == session->grant.key;
		if (of_key_n > worst_n ||
		    (of_key_n == worst_n && worst && session->seen_ms < worst->seen_ms)) {
			worst = session;
			worst_n = of_key_n;
		}
	}
	if (own_n >= SESSIONS_OF_KEY_MAX)
		return own;
	return place ? place : worst;
}

static void random_text(char text[SESSION_TEXT_SIZE])
{
	unsigned char bytes[SECRET_BYTES];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2base64(text, SESSION_TEXT_SIZE, bytes, sizeof(bytes),
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

enum auth_answer auth_session_begin(struct auth *auth, const char *key, int is_asked,
				    char session[SESSION_TEXT_SIZE], struct visitor *visitor)
{
	struct console_session *place;
	struct key_grant grant;
	enum auth_answer answer;

	pthread_mutex_lock(&auth->lock);
	answer = key_find(auth, key, is_asked, &grant);
	if (answer == AUTH_OK && !is_allowed(grant.key->roles, grant.key, 0, NULL))
		answer = AUTH_FORBIDDEN;
	if (answer == AUTH_OK) {
		place = session_place(auth, grant.key);
		random_text(session);
		random_text(place->token);
		SHA256((const unsigned char *)session, strlen(session), place->sha256);
		place->grant = grant;
		place->begin_ms = place->seen_ms = clock_monotonic_ms();
		place->ends_ms = clock_wall_ms() + auth->config->admin_session_s * 1000;
		visitor_set(visitor, &grant, place);
	}
	pthread_mutex_unlock(&auth->lock);
	return answer;
}

void auth_session_end(struct auth *auth, const char *text)
{
	struct console_session *session;

	pthread_mutex_lock(&auth->lock);
	session = session_find(auth, text);
	if (session)
		OPENSSL_cleanse(session, sizeof(*session));
	pthread_mutex_unlock(&auth->lock);
}
