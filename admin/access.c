/*
 * The thread owns the connections to the stores. The keys and the sessions have one lock, which is
 * never held while a store is waited for.
 */
#include "admin/access.h"

#include "admin/metrics.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/postgres/session.h"
#include "common/redis/client.h"
#include "common/thread.h"
#include "embed.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_MS 500
#define ASKED_EVERY_MS 100 /* however many strangers ask */
#define RECORDS_MAX 1000   /* in one statement */
#define TIMEOUT_MS 3000
#define SESSIONS_MAX 1000
#define SESSIONS_OF_KEY_MAX 50 /* so that no key ends the sessions of others */
#define SECRET_BYTES 32
#define VERSION_FIELD "version"

struct session {
	unsigned char sha256[SHA256_DIGEST_LENGTH]; /* of what the cookie has */
	char token[SESSION_TEXT_SIZE];
	struct key_grant grant; /* .key NULL: the place is free */
	int64_t begin_ms, seen_ms;
	int64_t ends_ms; /* by the wall clock, for people */
};

struct access {
	const struct config *config;
	struct thread thread;
	pthread_mutex_t lock;
	uint64_t asked_n;          /* questions by access_ask() */
	int asked_by_known;        /* one of them since the last look began: no pause */
	uint64_t looked_n, told_n; /* the last one that a look has answered, and a store has */
	struct keys *keys;
	int64_t told_ms; /* when a store last told of all keys that are known; 0: never */
	struct session sessions[SESSIONS_MAX];

	/* The thread's. */
	struct postgres *postgres;
	struct redis_client *redis;
	int redis_is_lost;
	int64_t postgres_version, redis_version; /* up to which each has told; 0: nothing */
};

/* ---- the thread */

static void record_take(struct access *access, const char *text, size_t len)
{
	enum keys_merged merged = keys_merge(access->keys, text, len);

	if (merged == KEYS_MALFORMED || merged == KEYS_FULL)
		log_warn("key_record",
			 LOG_S("error", merged == KEYS_FULL ? "there are too many keys"
							    : "not of the form of a record"));
}

/* The store has told of all changes up to this number. Under the lock. */
static void told(struct access *access, int64_t version)
{
	if (version >= access->postgres_version && version >= access->redis_version)
		access->told_ms = clock_monotonic_ms();
}

static void postgres_look(struct access *access)
{
	static const struct postgres_patience patience = { .timeout_ms = TIMEOUT_MS };
	int again = 1;

	while (again && (postgres_up(access->postgres) || postgres_open(access->postgres) == 0)) {
		int64_t version = access->postgres_version, counted;
		int n = 0;
		PGresult *rows = postgres_ask(access->postgres, sql_query_key_news,
					      POSTGRES_ARGUMENTS(postgres_number(version),
								 postgres_number(RECORDS_MAX)),
					      &patience);

		if (!rows || PQntuples(rows) == 0) {
			PQclear(rows);
			return;
		}
		pthread_mutex_lock(&access->lock);
		counted = column_number(rows, 0, "counted");
		for (int row = 0; counted >= version && row < PQntuples(rows); row++) {
			const char *text = column_text(rows, row, "record");

			if (!*text)
				continue;
			n++;
			access->postgres_version = column_number(rows, row, "version");
			record_take(access, text, strlen(text));
		}
		if (counted < version) { /* it was put back: all of it once more */
			access->postgres_version = 0;
		} else if (n < RECORDS_MAX) {
			access->postgres_version = counted;
			told(access, counted);
		}
		pthread_mutex_unlock(&access->lock);
		again = n == RECORDS_MAX;
		PQclear(rows);
	}
}

static void redis_look(struct access *access)
{
	const char *hget[] = { "HGET", KEYS_KEY, VERSION_FIELD }, *all[] = { "HGETALL", KEYS_KEY };
	redisReply *reply;
	int64_t version = 0;

	reply = redis_client_open(access->redis) ? NULL : redis_client_call(access->redis, 3, hget);
	if (!reply && !access->redis_is_lost) /* once, until it answers again */
		log_warn("redis_lost", LOG_S("error", redis_client_error(access->redis)));
	access->redis_is_lost = !reply;
	if (reply && reply->type == REDIS_REPLY_STRING)
		(void)id_parse(reply->str, reply->len, &version);
	freeReplyObject(reply);
	if (version == 0) /* it has lost its data, or never had any */
		return;

	reply = version == access->redis_version ? NULL : redis_client_call(access->redis, 2, all);
	pthread_mutex_lock(&access->lock);
	if (reply && reply->type == REDIS_REPLY_ARRAY) {
		access->redis_version = 0;
		for (size_t i = 0; i + 1 < reply->elements; i += 2) {
			const redisReply *field = reply->element[i], *value = reply->element[i + 1];

			if (strcmp(field->str, VERSION_FIELD) != 0)
				record_take(access, value->str, value->len);
			else if (id_parse(value->str, value->len, &access->redis_version))
				access->redis_version = 0;
		}
	}
	if (version == access->redis_version)
		told(access, version);
	pthread_mutex_unlock(&access->lock);
	freeReplyObject(reply);
}

static void *run(void *data)
{
	struct access *access = data;

	while (!access->thread.stops) {
		int64_t begin_ms = clock_monotonic_ms(), looked_ms, next_ms;
		uint64_t asked_n;

		pthread_mutex_lock(&access->lock);
		asked_n = access->asked_n;
		access->asked_by_known = 0;
		pthread_mutex_unlock(&access->lock);
		redis_look(access);
		postgres_look(access);
		pthread_mutex_lock(&access->lock);
		access->looked_n = asked_n;
		if (access->told_ms >= begin_ms)
			access->told_n = asked_n;
		pthread_mutex_unlock(&access->lock);

		/* A question brings the next look forward. */
		looked_ms = clock_monotonic_ms();
		do {
			pthread_mutex_lock(&access->lock);
			next_ms = looked_ms + (access->asked_by_known               ? 0
					       : access->asked_n > access->looked_n ? ASKED_EVERY_MS
										    : EVERY_MS);
			pthread_mutex_unlock(&access->lock);
			if (clock_monotonic_ms() >= next_ms)
				break;
			thread_pause(&access->thread, next_ms, NULL, 0);
		} while (!access->thread.stops);
	}
	return NULL;
}

struct access *access_start(const struct config *config)
{
	struct access *access = checked(calloc(1, sizeof(*access)));

	access->config = config;
	access->keys = keys_new();
	check(pthread_mutex_init(&access->lock, NULL) == 0);
	access->redis = redis_client_new(config->redis_url, NULL);
	access->postgres = postgres_new(
		&(struct postgres_options){ .url = config->database_url,
					    .application_name = "coupon-admin",
					    .connect_timeout_ms = TIMEOUT_MS,
					    .statement_timeout_ms = TIMEOUT_MS,
					    .lost_event = "database_lost",
					    .unreachable_event = "database_lost",
					    .refused_event = "lookup_failed" });
	thread_start(&access->thread, run, access);
	return access;
}

void access_stop(struct access *access)
{
	thread_stop(&access->thread);
	postgres_free(access->postgres);
	redis_client_free(access->redis);
	keys_free(access->keys);
	pthread_mutex_destroy(&access->lock);
	OPENSSL_cleanse(access, sizeof(*access));
	free(access);
}

uint64_t access_ask(struct access *access, enum access_answer why)
{
	uint64_t question;

	pthread_mutex_lock(&access->lock);
	question = ++access->asked_n;
	access->asked_by_known |= why == ACCESS_KNOWN;
	pthread_mutex_unlock(&access->lock);
	thread_wake(&access->thread);
	return question;
}

int access_told(struct access *access, uint64_t question)
{
	int told;

	pthread_mutex_lock(&access->lock);
	told = access->told_n >= question ? 1 : access->looked_n >= question ? -1 : 0;
	pthread_mutex_unlock(&access->lock);
	return told;
}

/* ---- what is presented; all under the lock */

static int knows_keys(const struct access *access)
{
	return access->told_ms &&
	       clock_monotonic_ms() - access->told_ms <= access->config->keys_stale_s * 1000;
}

static enum access_answer key_find(struct access *access, const char *text, int is_asked,
				   struct key_grant *grant)
{
	enum key_verdict verdict = keys_find(access->keys, text, strlen(text), clock_wall_ms(),
					     grant);
	int is_new = verdict == KEY_UNKNOWN || verdict == KEY_WRONG;

	if ((verdict != KEY_FORM && !knows_keys(access)) || (is_new && is_asked < 0))
		return ACCESS_UNAVAILABLE;
	if (verdict == KEY_GOOD)
		return is_asked ? ACCESS_OK : ACCESS_KNOWN;
	if (is_new && is_asked == 0)
		return ACCESS_NEW;
	metrics_add(METRIC_KEYS_REFUSED, 1);
	log_info("key_refused", LOG_S("verdict", key_verdict_kind(verdict)));
	return ACCESS_NOBODY;
}

static int session_is_over(const struct access *access, const struct session *session,
			   int64_t now_ms)
{
	return now_ms - session->begin_ms >= access->config->admin_session_s * 1000 ||
	       now_ms - session->seen_ms >= SESSION_IDLE_S * 1000LL;
}

static struct session *session_find(struct access *access, const char *text)
{
	unsigned char sha256[SHA256_DIGEST_LENGTH];
	int64_t now_ms = clock_monotonic_ms();

	SHA256((const unsigned char *)text, strlen(text), sha256);
	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		struct session *session = &access->sessions[i];

		if (session->grant.key &&
		    CRYPTO_memcmp(sha256, session->sha256, sizeof(sha256)) == 0)
			return session_is_over(access, session, now_ms) ? NULL : session;
	}
	return NULL;
}

/* The session with this token: it has not ended since. */
static int session_goes_on(const struct access *access, const char *token)
{
	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		const struct session *session = &access->sessions[i];

		if (session->grant.key &&
		    CRYPTO_memcmp(token, session->token, sizeof(session->token)) == 0)
			return !session_is_over(access, session, clock_monotonic_ms());
	}
	return 0;
}

static enum access_answer session_check(struct access *access,
					const struct credentials *credentials, int is_change,
					struct session **found)
{
	struct session *session = session_find(access, credentials->session);
	const char *token = credentials->token ? credentials->token : "";

	if (!session)
		return ACCESS_NOBODY;
	if (!knows_keys(access))
		return ACCESS_UNAVAILABLE;
	if (key_grant_check(&session->grant, clock_wall_ms()) != KEY_GOOD) {
		OPENSSL_cleanse(session, sizeof(*session));
		return ACCESS_NOBODY;
	}
	if (is_change && (strlen(token) != strlen(session->token) ||
			  CRYPTO_memcmp(token, session->token, strlen(token)) != 0))
		return ACCESS_UNPROVED;
	if (!credentials->is_asked)
		return ACCESS_KNOWN;
	session->seen_ms = clock_monotonic_ms();
	*found = session;
	return ACCESS_OK;
}

/* An admin may do what a monitor may. */
static int is_allowed(const struct api_key *key, unsigned role, const struct access_about *about)
{
	int64_t id;

	if (!(key->roles & (KEY_ROLE_ADMIN | (role == KEY_ROLE_ADMIN ? 0 : KEY_ROLE_MONITOR))))
		return 0;
	if (role == 0 || !key->coupons)
		return 1;
	if (!about || (!about->coupon && !about->budget))
		return 0;
	if (about->coupon &&
	    (id_parse(about->coupon, strlen(about->coupon), &id) || !key_has_coupon(key, id)))
		return 0;
	return !about->budget || key_has_budget(key, about->budget);
}

static void visitor_set(struct visitor *visitor, const struct key_grant *grant,
			const struct session *session)
{
	memset(visitor, 0, sizeof(*visitor));
	memcpy(visitor->key, grant->key->id, sizeof(visitor->key));
	visitor->roles = grant->key->roles;
	visitor->grant = *grant;
	if (!session)
		return;
	memcpy(visitor->token, session->token, sizeof(visitor->token));
	visitor->ends_ms = session->ends_ms;
}

enum access_answer access_check(struct access *access, const struct credentials *credentials,
				unsigned role, const struct access_about *about, int is_change,
				struct visitor *visitor)
{
	enum access_answer answer = ACCESS_NOBODY;
	struct session *session = NULL;
	struct key_grant grant = { 0 };

	pthread_mutex_lock(&access->lock);
	if (credentials->key)
		answer = key_find(access, credentials->key, credentials->is_asked, &grant);
	else if (credentials->session)
		answer = session_check(access, credentials, is_change, &session);
	if (answer == ACCESS_OK) {
		visitor_set(visitor, session ? &session->grant : &grant, session);
		if (!is_allowed(visitor->grant.key, role, about))
			answer = ACCESS_FORBIDDEN;
	}
	pthread_mutex_unlock(&access->lock);
	return answer;
}

enum access_answer access_check_again(struct access *access, struct visitor *visitor, unsigned role,
				      const struct access_about *about)
{
	enum access_answer answer = ACCESS_OK;

	pthread_mutex_lock(&access->lock);
	if (!knows_keys(access))
		answer = ACCESS_UNAVAILABLE;
	else if (key_grant_check(&visitor->grant, clock_wall_ms()) != KEY_GOOD ||
		 (*visitor->token && !session_goes_on(access, visitor->token)))
		answer = ACCESS_NOBODY;
	else if (!is_allowed(visitor->grant.key, role, about))
		answer = ACCESS_FORBIDDEN;
	pthread_mutex_unlock(&access->lock);
	return answer;
}

size_t access_sessions_n(struct access *access)
{
	size_t n = 0;

	pthread_mutex_lock(&access->lock);
	for (size_t i = 0; i < SESSIONS_MAX; i++)
		n += access->sessions[i].grant.key &&
		     !session_is_over(access, &access->sessions[i], clock_monotonic_ms());
	pthread_mutex_unlock(&access->lock);
	return n;
}

int access_is_ready(struct access *access)
{
	int ready;

	pthread_mutex_lock(&access->lock);
	ready = knows_keys(access);
	pthread_mutex_unlock(&access->lock);
	return ready;
}

/* ---- sessions */

/*
 * A place for a session of the key: a free one, or that of its session that was not used for
 * longest, if it has SESSIONS_OF_KEY_MAX. Where none is free, that which was not used for longest
 * of the key that has most: one that comes by ends no session of those who have few.
 */
static struct session *session_place(struct access *access, const struct api_key *key)
{
	int64_t now_ms = clock_monotonic_ms();
	struct session *place = NULL, *own = NULL, *worst = NULL;
	size_t own_n = 0, worst_n = 0;

	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		struct session *session = &access->sessions[i];
		size_t of_key_n = 0;

		if (!session->grant.key || session_is_over(access, session, now_ms)) {
			place = place ? place : session;
			continue;
		}
		if (session->grant.key == key) {
			own_n++;
			if (!own || session->seen_ms < own->seen_ms)
				own = session;
		}
		for (size_t j = 0; place == NULL && j < SESSIONS_MAX; j++)
			of_key_n += access->sessions[j].grant.key == session->grant.key;
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

enum access_answer access_session_begin(struct access *access, const char *key, int is_asked,
					char session[SESSION_TEXT_SIZE], struct visitor *visitor)
{
	struct session *place;
	struct key_grant grant;
	enum access_answer answer;

	pthread_mutex_lock(&access->lock);
	answer = key_find(access, key, is_asked, &grant);
	if (answer == ACCESS_OK && !is_allowed(grant.key, 0, NULL))
		answer = ACCESS_FORBIDDEN;
	if (answer == ACCESS_OK) {
		place = session_place(access, grant.key);
		random_text(session);
		random_text(place->token);
		SHA256((const unsigned char *)session, strlen(session), place->sha256);
		place->grant = grant;
		place->begin_ms = place->seen_ms = clock_monotonic_ms();
		place->ends_ms = clock_wall_ms() + access->config->admin_session_s * 1000;
		visitor_set(visitor, &grant, place);
	}
	pthread_mutex_unlock(&access->lock);
	return answer;
}

void access_session_end(struct access *access, const char *text)
{
	struct session *session;

	pthread_mutex_lock(&access->lock);
	session = session_find(access, text);
	if (session)
		OPENSSL_cleanse(session, sizeof(*session));
	pthread_mutex_unlock(&access->lock);
}
