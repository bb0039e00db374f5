#include "gateway/auth/auth.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/program/key_file.h"
#include "common/serve/metrics.h"
#include "gateway/metrics.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOOK_MS 1000
#define UNIX_KEYS_MAX 64

/* A user of this machine, and its key: an entry of COUPON_UNIX_KEYS. */
struct unix_key {
	uid_t uid;
	char id[KEY_ID_LEN + 1];
};

struct auth {
	const struct config *config;
	struct unix_key unix_keys[UNIX_KEYS_MAX];
	size_t unix_keys_n;
	int is_required;
	struct key_watch watch;
	struct tokens *tokens; /* NULL: none are taken */
	struct key_file_stamp stamp;
	int64_t look_ms;
	char why[KEY_FILE_WHY_SIZE]; /* the file of token keys could not be used; "": it could */
};

/* Which roles allow the operation, and whether the user of a token may ask for it. */
static const struct {
	unsigned roles;
	int is_for_users;
} allowed[OP_COUNT] = {
	[OP_ISSUE] = { KEY_ROLE_ISSUE, 1 },
	[OP_CLAIM] = { KEY_ROLE_ISSUE, 1 },
	[OP_CODE] = { KEY_ROLE_ISSUE, 1 },
	[OP_HOLD] = { KEY_ROLE_USE, 0 },
	[OP_USE] = { KEY_ROLE_USE, 0 },
	[OP_RELEASE] = { KEY_ROLE_USE, 0 },
	[OP_ROLLBACK] = { KEY_ROLE_USE, 0 },
	[OP_QUOTE] = { KEY_ROLE_ISSUE | KEY_ROLE_USE | KEY_ROLE_READ, 1 },
	[OP_STATUS] = { KEY_ROLE_ISSUE, 1 },
	[OP_COUPON] = { KEY_ROLE_ISSUE, 1 },
	[OP_COUPONS] = { KEY_ROLE_READ, 1 },
	[OP_OFFERS] = { KEY_ROLE_ISSUE, 1 },
	[OP_PING] = { ~0U, 1 },
	[OP_AUTH] = { ~0U, 1 },
	[OP_STATS] = { KEY_ROLE_MONITOR, 0 },
};

/* Reads "UID:KEY,…". 0, or -1. */
static int unix_keys_parse(const char *text, struct unix_key keys[UNIX_KEYS_MAX], size_t *n)
{
	for (*n = 0; *text; (*n)++) {
		struct unix_key *key = &keys[*n];
		size_t digits = strspn(text, "0123456789");
		char number[16];

		if (*n == UNIX_KEYS_MAX || digits == 0 || digits > 9 || text[digits] != ':')
			return -1;
		snprintf(number, sizeof(number), "%.*s", (int)digits, text);
		key->uid = (uid_t)strtoul(number, NULL, 10);
		text += digits + 1;
		if (strlen(text) < KEY_ID_LEN || !key_id_valid(text, KEY_ID_LEN))
			return -1;
		snprintf(key->id, sizeof(key->id), "%.*s", KEY_ID_LEN, text);
		text += KEY_ID_LEN;
		if (*text && (*text++ != ',' || !*text))
			return -1;
	}
	return 0;
}

void auth_check(const struct config *config)
{
	struct unix_key keys[UNIX_KEYS_MAX];
	struct token_keys *token_keys;
	char why[KEY_FILE_WHY_SIZE];
	size_t n;

	if (unix_keys_parse(config->unix_keys, keys, &n))
		log_fatal("COUPON_UNIX_KEYS is \"%s\": allowed are at most %d pairs UID:KEY, "
			  "joined by commas, for example 1000:3k9v0d7xqa",
			  config->unix_keys, UNIX_KEYS_MAX);
	if (strcmp(config->auth, "off") != 0 && strcmp(config->auth, "required") != 0)
		log_fatal("COUPON_AUTH is \"%s\": allowed are off and required", config->auth);
	if (!*config->token_keys)
		return;
	if (!*config->token_issuer || !*config->token_audience)
		log_fatal("COUPON_TOKEN_KEYS is set: it also needs COUPON_TOKEN_ISSUER and "
			  "COUPON_TOKEN_AUDIENCE");
	token_keys = token_keys_load(config->token_keys, why);
	if (!token_keys)
		log_fatal("COUPON_TOKEN_KEYS: %s", why);
	token_keys_free(token_keys);
}

struct auth *auth_new(const struct config *config)
{
	const struct token_terms terms = { .issuer = config->token_issuer,
					   .audience = config->token_audience,
					   .leeway_ms = config->token_leeway_s * 1000 };
	struct auth *auth = checked(calloc(1, sizeof(*auth)));

	auth->config = config;
	auth->is_required = strcmp(config->auth, "required") == 0;
	auth->watch = (struct key_watch){ .keys = keys_new(),
					  .stale_ms = config->keys_stale_s * 1000 };
	check(unix_keys_parse(config->unix_keys, auth->unix_keys, &auth->unix_keys_n) == 0);
	if (*config->token_keys) {
		auth->tokens = tokens_new(&terms);
		auth_reload(auth);
	}
	return auth;
}

struct key_watch *auth_key_watch(struct auth *auth)
{
	return &auth->watch;
}

int auth_is_required(const struct auth *auth)
{
	return auth->is_required;
}

const char *auth_key_of_uid(const struct auth *auth, uid_t uid)
{
	for (size_t i = 0; i < auth->unix_keys_n; i++)
		if (auth->unix_keys[i].uid == uid)
			return auth->unix_keys[i].id;
	return NULL;
}

/* is_again: nothing has changed but perhaps the reason, for instance that descriptors were out. */
static void token_keys_renew(struct auth *auth, int is_again)
{
	char before[sizeof(auth->why)];
	struct token_keys *keys;

	memcpy(before, auth->why, sizeof(before));
	auth->stamp = key_file_stamp(auth->config->token_keys); /* before it is read */
	keys = token_keys_load(auth->config->token_keys, auth->why);
	if (!keys) {
		if (!is_again || strcmp(auth->why, before) != 0)
			log_error("token_keys_not_loaded", LOG_S("error", auth->why));
		return;
	}
	auth->why[0] = '\0';
	log_info("token_keys_loaded", LOG_I("keys", keys->n));
	tokens_keys_set(auth->tokens, keys);
}

void auth_reload(struct auth *auth)
{
	if (auth->tokens)
		token_keys_renew(auth, 0);
}

void auth_tick(struct auth *auth, int64_t now_ms)
{
	struct key_file_stamp stamp;

	if (!auth->tokens || now_ms < auth->look_ms)
		return;
	auth->look_ms = now_ms + LOOK_MS;
	stamp = key_file_stamp(auth->config->token_keys);
	if (memcmp(&stamp, &auth->stamp, sizeof(stamp)) != 0)
		token_keys_renew(auth, 0);
	else if (*auth->why)
		token_keys_renew(auth, 1);
}

int auth_can_judge(const struct auth *auth, int64_t now_ms)
{
	return !auth->is_required || key_watch_knows(&auth->watch, now_ms);
}

const char *auth_trouble(const struct auth *auth, int64_t now_ms)
{
	if (*auth->why)
		return auth->why;
	return auth_can_judge(auth, now_ms) ? NULL : KEYS_UNTOLD_TEXT;
}

static enum answer key_identify(struct auth *auth, struct identity *identity, const char *text,
				size_t len, int is_asked, struct auth_answer *answer)
{
	enum key_judgement judgement = key_watch_find(&auth->watch, text, len, is_asked,
						      clock_monotonic_ms(), clock_wall_ms(),
						      &identity->grant);

	/* No store is asked for who guesses. */
	if (judgement == KEY_MAY_BE_NEW &&
	    limits_look(answer->limits, 1, clock_monotonic_us()).wait_us > 0)
		judgement = key_watch_find(&auth->watch, text, len, 1, clock_monotonic_ms(),
					   clock_wall_ms(), &identity->grant);
	answer->may_be_new = judgement == KEY_MAY_BE_NEW;
	if (judgement == KEY_REFUSED)
		metrics_add(METRIC_AUTH_KEY_WRONG, 1);
	if (judgement == KEY_UNTOLD)
		return ANSWER_UNAVAILABLE;
	return judgement == KEY_ACCEPTED ? ANSWER_OK : ANSWER_UNAUTHORIZED;
}

void auth_identify(struct auth *auth, struct responder *responder, const char *text, size_t len,
		   int is_asked, struct auth_answer *answer)
{
	struct identity *identity = &responder->identity;
	int64_t now_us = clock_monotonic_us();
	enum token_verdict verdict;
	const struct token *token;

	identity_forget(identity);
	answer->may_be_new = 0;
	answer->limits_n = 0;
	answer->limits[0] = (struct limit){ .kind = LIMIT_WRONG,
					    .key = responder->peer,
					    .rate = LIMIT_WRONG_RATE,
					    .burst = LIMIT_WRONG_BURST };
	answer->answer = ANSWER_UNAUTHORIZED;
	if (len >= strlen(KEY_PREFIX) && memcmp(text, KEY_PREFIX, strlen(KEY_PREFIX)) == 0) {
		answer->answer = key_identify(auth, identity, text, len, is_asked, answer);
	} else if (auth->tokens) {
		/*
		 * No signature is looked at if too many of this address were wrong. Keys cost a
		 * hash only, and tokens that were verified before no more than that: who shares an
		 * address with an attacker goes on.
		 */
		answer->verdict = limits_look(answer->limits, 1, now_us);
		if (answer->verdict.wait_us == 0 || tokens_remember(auth->tokens, text, len)) {
			verdict = tokens_verify(auth->tokens, text, len, clock_wall_ms(), &token);
			if (verdict == TOKEN_GOOD) {
				identity->token = token_hold(token);
				answer->answer = ANSWER_OK;
			} else {
				metrics_add(METRIC_AUTH_TOKEN_WRONG, 1);
				log_info("token_refused",
					 LOG_S("verdict", token_verdict_kind(verdict)));
			}
		} else {
			metrics_add(METRIC_AUTH_HELD_BACK, 1);
			answer->answer = ANSWER_RATE_LIMITED;
		}
	}
	if (answer->answer == ANSWER_UNAUTHORIZED && !answer->may_be_new)
		limits_take(answer->limits, 1, now_us);
}

enum answer auth_identify_by_id(struct auth *auth, struct responder *responder, const char *id)
{
	identity_forget(&responder->identity);
	if (!key_watch_knows(&auth->watch, clock_monotonic_ms()))
		return ANSWER_UNAVAILABLE;
	keys_find_by_id(auth->watch.keys, id, strlen(id), clock_wall_ms(),
			&responder->identity.grant);
	return ANSWER_OK;
}

/* The uses of API keys. */

#define DIGIT_BITS 5
#define DIGIT_MASK ((1U << DIGIT_BITS) - 1)

struct key_counters {
	atomic_uint_least64_t id; /* its digits, behind a 1; 0: of no key yet */
	atomic_uint_least64_t requests;
	atomic_uint_least64_t refused;
	atomic_int_least64_t last_ms;  /* wall clock */
	atomic_int_least64_t taken_ms; /* last_ms, when it was taken last */
};

/* Shared; the last one is that of the others. They are taken in order, and never given back. */
static struct key_counters *key_counters;

void key_uses_init(void)
{
	void *memory = mmap(NULL, (KEY_USES_MAX + 1) * sizeof(*key_counters),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED);
	key_counters = memory;
}

size_t key_use_place(const char *id)
{
	uint64_t number = 1;
	size_t place;

	for (size_t i = 0; i < KEY_ID_LEN; i++) {
		const char *digit = memchr(KEY_ID_DIGITS, id[i], strlen(KEY_ID_DIGITS));

		check(digit != NULL);
		number = number << DIGIT_BITS | (uint64_t)(digit - KEY_ID_DIGITS);
	}
	for (place = 0; place < KEY_USES_MAX; place++) {
		uint64_t there = 0;

		if (atomic_compare_exchange_strong(&key_counters[place].id, &there, number) ||
		    there == number)
			break;
	}
	return place;
}

void key_use(size_t place, int64_t now_ms, int is_refused)
{
	struct key_counters *counters = &key_counters[place];

	atomic_fetch_add_explicit(&counters->requests, 1, memory_order_relaxed);
	if (is_refused)
		atomic_fetch_add_explicit(&counters->refused, 1, memory_order_relaxed);
	atomic_store_explicit(&counters->last_ms, now_ms, memory_order_relaxed);
}

static void key_id_write(uint64_t number, char id[KEY_ID_LEN + 1])
{
	id[KEY_ID_LEN] = '\0';
	for (size_t at = KEY_ID_LEN; at-- > 0; number >>= DIGIT_BITS)
		id[at] = KEY_ID_DIGITS[number & DIGIT_MASK];
}

size_t key_uses_take(struct key_last_use *uses, size_t most)
{
	size_t n = 0;

	for (size_t place = 0; place < KEY_USES_MAX && n < most; place++) {
		struct key_counters *counters = &key_counters[place];
		int64_t last_ms = atomic_load(&counters->last_ms),
			taken_ms = atomic_load(&counters->taken_ms);

		if (last_ms == taken_ms ||
		    !atomic_compare_exchange_strong(&counters->taken_ms, &taken_ms, last_ms))
			continue;
		key_id_write(atomic_load(&counters->id), uses[n].id);
		uses[n++].ms = last_ms;
	}
	return n;
}

void key_uses_prometheus(struct evbuffer *out)
{
	static const struct {
		const char *name, *type, *help;
	} metrics[] = {
		{ "key_requests_total", "counter", "Requests with an API key, by its id." },
		{ "key_refused_total", "counter",
		  "Requests refused because of the API key's roles, coupons or rate, by its id." },
		{ "key_last_used_seconds", "gauge", "Unix time of the last use of the API key." },
	};

	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		exposition_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		for (size_t place = 0; place <= KEY_USES_MAX; place++) {
			struct key_counters *counters = &key_counters[place];
			const double values[] = { (double)atomic_load(&counters->requests),
						  (double)atomic_load(&counters->refused),
						  (double)atomic_load(&counters->last_ms) / 1000 };
			char id[KEY_ID_LEN + 1];

			if (values[2] == 0)
				continue;
			key_id_write(atomic_load(&counters->id), id);
			check(evbuffer_add_printf(out, "couponmq_%s{key=\"%s\"} %.17g\n",
						  metrics[i].name,
						  place < KEY_USES_MAX ? id : KEY_USE_OTHERS,
						  values[i]) > 0);
		}
	}
}

/* What a request may do. */

/* Whether what was presented is still good. */
static enum answer identity_check(struct auth *auth, struct identity *identity)
{
	enum key_judgement judgement;

	if (identity->grant.key) {
		judgement = key_watch_check(&auth->watch, &identity->grant, clock_monotonic_ms(),
					    clock_wall_ms());
		if (judgement != KEY_REFUSED)
			return judgement == KEY_ACCEPTED ? ANSWER_OK : ANSWER_UNAVAILABLE;
		identity_forget(identity);
	} else if (identity->token) {
		if (tokens_look(auth->tokens, identity->token, clock_wall_ms()) == TOKEN_GOOD)
			return ANSWER_OK;
		identity_forget(identity);
	}
	return auth->is_required ? ANSWER_UNAUTHORIZED : ANSWER_OK;
}

/* Whether its key or token allows the request to an authenticated caller. */
static int is_allowed(const struct identity *identity, const struct request *request)
{
	const struct api_key *key = identity->grant.key;
	const struct token *token = identity->token;
	size_t receives_n = request->use ? request->use->use.receives_n : 0;

	if (key && !(key->roles & allowed[request->op].roles))
		return 0;
	if (key && request->op == OP_QUOTE && !request->coupon &&
	    !(key->roles & (KEY_ROLE_READ | KEY_ROLE_USE)))
		return 0; /* it would tell which coupons the user has */
	if (key && request->use && *request->use->use.by && !(key->roles & KEY_ROLE_ADMIN))
		return 0; /* it asks in the name of another one */
	if (token && !allowed[request->op].is_for_users)
		return 0;
	if (token && request->user.len > 0 && !user_id_same(&request->user, &token->user))
		return 0;

	for (size_t i = 0; i < receives_n; i++)
		if (!identity_has_coupon(identity, request->use->receives[i].coupon))
			return 0;
	return !request->coupon || identity_has_coupon(identity, request->coupon);
}

static void limit_add(struct auth_answer *answer, enum limit_kind kind, uint64_t key, int64_t rate)
{
	if (rate > 0)
		answer->limits[answer->limits_n++] = (struct limit){
			.kind = kind, .key = key, .rate = rate, .burst = limit_burst(rate)
		};
}

void auth_admit(struct auth *auth, const struct request *request, struct auth_answer *answer)
{
	const struct responder *responder = request->responder;
	struct identity *identity = &request->responder->identity;
	const struct api_key *key = identity->grant.key;
	const struct user_id *user = identity->token ? &identity->token->user : NULL;

	/* Takes one of each rate that the request is counted by. */
	answer->answer = ANSWER_OK;
	answer->limits_n = 0;
	if (key)
		limit_add(answer, LIMIT_KEY, hash_keyed(key->id, KEY_ID_LEN), key->rate);
	if (user && !responder->is_local)
		limit_add(answer, LIMIT_USER, hash_keyed(user->text, user->len),
			  auth->config->rate_user);
	if (!key && !responder->is_local)
		limit_add(answer, LIMIT_ADDRESS, responder->peer, auth->config->rate_address);
	if (answer->limits_n > 0) {
		answer->verdict = limits_take(answer->limits, answer->limits_n,
					      clock_monotonic_us());
		if (answer->verdict.wait_us > 0)
			answer->answer = ANSWER_RATE_LIMITED;
	}

	if (answer->answer == ANSWER_OK) {
		answer->answer = identity_check(auth, identity);
		if (answer->answer == ANSWER_UNAUTHORIZED && request->op == OP_PING)
			answer->answer = ANSWER_OK; /* it tells nothing */
		else if (answer->answer == ANSWER_OK && !is_allowed(identity, request))
			answer->answer = ANSWER_FORBIDDEN;
	}

	/* Counts for the key that was presented, also when it is no longer good. */
	if (key) {
		if (*key->use == 0)
			*key->use = key_use_place(key->id) + 1;
		key_use(*key->use - 1, clock_wall_ms(),
			answer->answer == ANSWER_FORBIDDEN ||
				answer->answer == ANSWER_RATE_LIMITED);
	}
}

enum answer auth_monitor(struct auth *auth, struct responder *responder)
{
	struct identity *identity = &responder->identity;
	enum answer answer = identity_check(auth, identity);

	if (answer != ANSWER_OK || !auth->is_required)
		return answer;
	return identity->grant.key && identity->grant.key->roles & KEY_ROLE_MONITOR
		       ? ANSWER_OK
		       : ANSWER_FORBIDDEN;
}
