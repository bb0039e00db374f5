#include "common/redis/redis.h"

#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis_tls.h"

#include <event2/http.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REDIS_PORT 6379
#define SENTINEL_PORT 26379
#define RUN_ID_PART 16 /* digits */

/* The suffixes are in the order of the bits of their keys. */
static const char *suffix_of(enum coupon_key key)
{
	static const char *const suffixes[] = { "",       ":users", ":outbox",  ":known",
						":seen",  ":dead",  ":settled", ":rejected",
						":terms", ":codes", ":filled" };

	return suffixes[__builtin_ctz((unsigned)key)];
}

const char *coupon_key(int64_t coupon, enum coupon_key key, char out[COUPON_KEY_SIZE])
{
	snprintf(out, COUPON_KEY_SIZE, "coupon:{%" PRId64 "}%s", coupon, suffix_of(key));
	return out;
}

const char *coupon_key_filling(int64_t coupon, int64_t generation, enum coupon_key key,
			       char out[COUPON_KEY_SIZE])
{
	snprintf(out, COUPON_KEY_SIZE, "coupon:{%" PRId64 "}:fill:%" PRId64 "%s", coupon,
		 generation, suffix_of(key));
	return out;
}

void coupon_keys_make(struct coupon_keys *keys, int64_t coupon, unsigned set)
{
	keys->n = 0;
	for (int i = 0; i < COUPON_KEYS_MAX; i++)
		if (set & 1u << i) {
			keys->names[keys->n] = coupon_key(coupon, (enum coupon_key)(1u << i),
							  keys->texts[keys->n]);
			keys->n++;
		}
}

/* Parses "user:password" or ":password". 0, or -1. */
static int userinfo_parse(struct redis_url *url, const char *userinfo)
{
	const char *colon = strchr(userinfo, ':');

	if (!colon)
		return -1;
	url->password = percent_decode(colon + 1, strlen(colon + 1));
	if (colon == userinfo)
		return url->password ? 0 : -1;
	url->user = percent_decode(userinfo, (size_t)(colon - userinfo));
	return url->password && url->user ? 0 : -1;
}

/* Parses "", "/" or "/database". 0, or -1. */
static int database_parse(struct redis_url *url, const char *path)
{
	char *end;
	long number;

	if (!path || strcmp(path, "") == 0 || strcmp(path, "/") == 0)
		return 0;
	if (path[1] < '0' || path[1] > '9')
		return -1;
	number = strtol(path + 1, &end, 10);
	if (*end || number > 1000000)
		return -1;
	url->database = (int)number;
	return 0;
}

/*
 * Takes the host and the port, or the default port. An IPv6 address is in brackets, which are not
 * part of it. 0, or -1.
 */
static int address_parse(struct redis_url *url, const struct evhttp_uri *uri, int default_port)
{
	const char *host = evhttp_uri_get_host(uri);
	size_t len = host ? strlen(host) : 0;

	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	if (len == 0)
		return -1;
	url->host = strndup(host, len);
	url->port = evhttp_uri_get_port(uri) < 0 ? default_port : evhttp_uri_get_port(uri);
	return !url->host || url->port == 0 ? -1 : 0;
}

/* Parses "host" or "host:port" as if it were a URL of Redis. 0, or -1. */
static int sentinel_parse(struct redis_url *url, const char *host, size_t len)
{
	struct evhttp_uri *uri;
	char *text;
	int rc = -1;

	if (url->sentinels_n == REDIS_SENTINELS_MAX || len > INT_MAX ||
	    asprintf(&text, "redis://%.*s", (int)len, host) < 0)
		return -1;
	uri = evhttp_uri_parse(text);
	if (uri && !evhttp_uri_get_userinfo(uri) && strlen(evhttp_uri_get_path(uri)) == 0 &&
	    address_parse(url, uri, SENTINEL_PORT) == 0) {
		url->sentinels[url->sentinels_n++] = (struct redis_host){ url->host, url->port };
		rc = 0;
	} else {
		free(url->host);
	}
	url->host = NULL;
	if (uri)
		evhttp_uri_free(uri);
	free(text);
	return rc;
}

/* Parses what follows "://": "[user:password@]sentinel[:port],…/name[/database]". 0, or -1. */
static int sentinels_parse(struct redis_url *url, const char *text)
{
	const char *slash = strchr(text, '/'), *at, *host = text;
	char *userinfo;
	size_t len;
	int rc;

	if (!slash || strchr(slash, '@') || strpbrk(text, "?# "))
		return -1;
	at = memrchr(text, '@', (size_t)(slash - text));
	if (at) {
		userinfo = strndup(text, (size_t)(at - text));
		rc = userinfo ? userinfo_parse(url, userinfo) : -1;
		free(userinfo);
		if (rc)
			return -1;
		host = at + 1;
	}
	do {
		len = strcspn(host, ",/");
		if (sentinel_parse(url, host, len))
			return -1;
		host += len;
	} while (*host++ != '/');

	len = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			   "0123456789.-_"); /* all that Sentinels allow */
	if (len == 0 || (host[len] && host[len] != '/'))
		return -1;
	url->name = strndup(host, len);
	return url->name ? database_parse(url, host + len) : -1;
}

static const char *after(const char *text, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

int redis_url_parse(struct redis_url *url, const char *text)
{
	const char *plain = after(text, "redis+sentinel://");
	const char *tls = after(text, "rediss+sentinel://");
	struct evhttp_uri *uri = NULL;
	const char *scheme;
	int rc = -1;

	memset(url, 0, sizeof(*url));
	if (plain || tls) {
		url->is_tls = tls != NULL;
		rc = sentinels_parse(url, plain ? plain : tls);
		goto out;
	}
	uri = evhttp_uri_parse(text);
	if (!uri)
		return -1;
	scheme = evhttp_uri_get_scheme(uri);
	if (evhttp_uri_get_query(uri) || evhttp_uri_get_fragment(uri))
		goto out;
	url->is_tls = scheme && strcmp(scheme, "rediss") == 0;
	if (!scheme || (!url->is_tls && strcmp(scheme, "redis") != 0))
		goto out;
	if (address_parse(url, uri, REDIS_PORT))
		goto out;
	if (evhttp_uri_get_userinfo(uri) && userinfo_parse(url, evhttp_uri_get_userinfo(uri)))
		goto out;
	rc = database_parse(url, evhttp_uri_get_path(uri));
out:
	if (uri)
		evhttp_uri_free(uri);
	if (rc)
		redis_url_fini(url);
	return rc;
}

int redis_url_read(struct redis_url *url, const char *text, char why[REDIS_URL_WHY_SIZE])
{
	size_t len = strcspn(text, "?#");

	/* Without the text: it may contain a password. */
	if (text[len] && !strchr(text + len, '@')) { /* else it belongs to a password */
		snprintf(why, REDIS_URL_WHY_SIZE,
			 "has \"%c%.*s\": nothing is allowed after the database number, as in "
			 "redis://host:6379/9",
			 text[len], (int)strcspn(text + len + 1, "=&#@"), text + len + 1);
		return -1;
	}
	if (redis_url_parse(url, text)) {
		snprintf(why, REDIS_URL_WHY_SIZE,
			 "is not of the form redis://[user:password@]host[:port][/database] or "
			 "redis+sentinel://[user:password@]sentinel[:port],…/name[/database] (1 to "
			 "%d Sentinels), or rediss:// and rediss+sentinel:// with TLS",
			 REDIS_SENTINELS_MAX);
		return -1;
	}
	if (url->is_tls && !redis_has_tls()) {
		redis_url_fini(url);
		snprintf(why, REDIS_URL_WHY_SIZE,
			 "is rediss://: hiredis %d.%d, with which this program was built, has no "
			 "TLS; use redis:// to a stunnel on this machine, as "
			 "docs/guides/security.md, TLS to the stores, describes",
			 HIREDIS_MAJOR, HIREDIS_MINOR);
		return -1;
	}
	return 0;
}

void redis_url_need(struct redis_url *url, const char *text)
{
	char why[REDIS_URL_WHY_SIZE];

	if (redis_url_read(url, text, why))
		log_fatal("REDIS_URL %s", why);
}

int redis_url_has_sentinels(const char *text)
{
	return after(text, "redis+sentinel://") || after(text, "rediss+sentinel://");
}

void redis_url_fini(struct redis_url *url)
{
	free(url->host);
	free(url->user);
	free(url->password);
	free(url->name);
	for (size_t i = 0; i < url->sentinels_n; i++)
		free(url->sentinels[i].name);
	memset(url, 0, sizeof(*url));
}

/* After any other error a script may have run in part. */
static const struct {
	const char *prefix;
	int is_of_server;
} not_run[] = {
	{ "LOADING ", 1 },
	{ "READONLY ", 1 },
	{ "BUSY ", 1 },
	{ "MISCONF ", 1 },
	{ "NOAUTH ", 1 },
	{ "NOREPLICAS ", 1 },
	{ "MASTERDOWN ", 1 },
	{ "CLUSTERDOWN ", 1 },
	{ "ERR max number of clients", 1 },
	/*
	 * Out of memory, Redis still runs commands that need none: removal from an outbox,
	 * expiry.
	 */
	{ "OOM ", 0 },
	{ "NOPERM ", 0 },
	{ "MOVED ", 0 },
	{ "ASK ", 0 },
	{ "TRYAGAIN ", 0 },
	{ "NOSCRIPT ", 0 },
	{ "ERR couponmq: ", 0 }, /* the scripts check everything before they write */
};

#define NOT_RUN_N (sizeof(not_run) / sizeof(not_run[0]))

static size_t not_run_find(const char *error)
{
	size_t i = 0;

	while (i < NOT_RUN_N && strncmp(error, not_run[i].prefix, strlen(not_run[i].prefix)) != 0)
		i++;
	return i;
}

int redis_error_is_of_server(const char *error)
{
	size_t i = not_run_find(error);

	return i < NOT_RUN_N && not_run[i].is_of_server;
}

int redis_error_means_not_run(const char *error)
{
	return not_run_find(error) < NOT_RUN_N;
}

int64_t redis_reply_number(const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_INTEGER)
		return reply->integer;
	return reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
}

void redis_reply_word(const redisReply *reply, char word[REDIS_WORD_SIZE])
{
	word[0] = '\0';
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
		reply = reply->element[0];
	if (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS)
		snprintf(word, REDIS_WORD_SIZE, "%s", reply->str);
}

int redis_reply_time_ms(const redisReply *reply, int64_t *time_ms)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -1;
	*time_ms = redis_reply_number(reply->element[0]) * 1000 +
		   redis_reply_number(reply->element[1]) / 1000;
	return 0;
}

/* The value of a line of INFO, or NULL. */
static const char *info_find(const redisReply *reply, const char *line)
{
	const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, line) : NULL;

	return at ? at + strlen(line) : NULL;
}

const char *redis_reply_version(const redisReply *reply, char version[REDIS_VERSION_SIZE])
{
	const char *valkey = info_find(reply, "\nvalkey_version:");
	const char *redis = info_find(reply, "\nredis_version:");
	const char *at = valkey ? valkey : redis ? redis : "";

	snprintf(version, REDIS_VERSION_SIZE, "%.*s", (int)strcspn(at, "\r\n"), at);
	return valkey ? "Valkey" : "Redis";
}

int redis_reply_writes(const redisReply *reply, int64_t *writes)
{
	const char *changes = info_find(reply, "\nrdb_changes_since_last_save:");

	if (!changes)
		return -1;
	*writes = strtoll(changes, NULL, 10);
	return 0;
}

int redis_reply_is_scan(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	       reply->element[0]->type == REDIS_REPLY_STRING &&
	       reply->element[1]->type == REDIS_REPLY_ARRAY;
}

static int is_id(const char *text)
{
	return text && strspn(text, "0123456789abcdef") == REDIS_RUN_ID_SIZE - 1;
}

/* Takes the reply to INFO. 0, or -1: it is another reply. */
static int process_take(struct redis_handshake *handshake, const redisReply *reply)
{
	const char *process = info_find(reply, "\nrun_id:");
	const char *history = info_find(reply, "\nmaster_replid:");
	const char *before = info_find(reply, "\nmaster_replid2:");
	const char *uptime = info_find(reply, "\nuptime_in_seconds:");
	const char *time_us = info_find(reply, "\nserver_time_usec:");
	int64_t now_ms = time_us ? strtoll(time_us, NULL, 10) / 1000 : 0, from_ms = 0, until_ms = 0;
	char version[REDIS_VERSION_SIZE];

	if (!is_id(process) || !is_id(history) || !is_id(before) || !uptime)
		return -1;
	snprintf(handshake->run_id, REDIS_RUN_ID_SIZE, "%.*s%.*s00000000", RUN_ID_PART, process,
		 RUN_ID_PART, history);
	/* One that has another history before this one may have been promoted a moment ago. */
	handshake->uptime_s = strspn(before, "0") == REDIS_RUN_ID_SIZE - 1
				      ? strtoll(uptime, NULL, 10)
				      : 0;
	service_version_log(SERVICE_REDIS, redis_reply_version(reply, version), version);

	/* The lease counts only if it is the lease of the process that has replied. */
	if (*handshake->lease.process &&
	    strncmp(handshake->lease.process, handshake->run_id, REDIS_PROCESS_LEN) == 0) {
		from_ms = handshake->lease.from_ms;
		until_ms = handshake->lease.until_ms;
		snprintf(handshake->run_id + REDIS_PROCESS_LEN,
			 REDIS_RUN_ID_SIZE - REDIS_PROCESS_LEN, "%08" PRIx32,
			 (uint32_t)handshake->lease.term);
	}
	handshake->lease_holds = handshake->url->sentinels_n == 0 ||
				 (from_ms <= now_ms && now_ms < until_ms);
	if (handshake->url->sentinels_n == 0)
		strcpy(handshake->lease_argument, handshake->run_id);
	else
		snprintf(handshake->lease_argument, sizeof(handshake->lease_argument),
			 "%s:%" PRId64 ":%" PRId64, handshake->run_id, from_ms, until_ms);
	return 0;
}

/* Takes the reply to the step. 0, or -1: the handshake has failed. */
static int handshake_take(struct redis_handshake *handshake, const redisReply *reply)
{
	static const char *const names[REDIS_STEPS] = { "AUTH", "SELECT",      "HMGET",
							"INFO", "SCRIPT LOAD", "EVALSHA" };
	const char *role, *error = NULL;
	redisReply *const *fields;
	int is_taken = 1;

	if (!reply)
		error = "no reply";
	else if (reply->type == REDIS_REPLY_ERROR &&
		 (handshake->step != REDIS_STEP_PROBE || strncmp(reply->str, "NOPERM", 6) == 0))
		error = reply->str;
	handshake->is_refused = error && reply && !redis_error_is_of_server(error);
	/* A lease that cannot be read does not hold. */
	if (handshake->step == REDIS_STEP_LEASE && handshake->is_refused)
		handshake->lease_holds = 0;
	if (error) {
		snprintf(handshake->why, REDIS_WHY_SIZE, "%s: %s", names[handshake->step], error);
		return -1;
	}
	switch (handshake->step) {
	case REDIS_STEP_AUTH:
	case REDIS_STEP_SELECT:
	case REDIS_STEP_PROBE:
	case REDIS_STEPS:
		break;
	case REDIS_STEP_LEASE:
		memset(&handshake->lease, 0, sizeof(handshake->lease));
		fields = reply->element;
		if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 4 ||
		    fields[0]->type != REDIS_REPLY_STRING || fields[0]->len != REDIS_PROCESS_LEN)
			break;
		memcpy(handshake->lease.process, fields[0]->str, REDIS_PROCESS_LEN + 1);
		handshake->lease.term = redis_reply_number(fields[1]);
		handshake->lease.from_ms = redis_reply_number(fields[2]);
		handshake->lease.until_ms = redis_reply_number(fields[3]);
		break;
	case REDIS_STEP_PROCESS:
		role = info_find(reply, "\nrole:");
		handshake->is_replica = role && strncmp(role, "master", 6) != 0;
		if (handshake->is_replica) {
			snprintf(handshake->why, REDIS_WHY_SIZE, "it is a replica");
			return -1;
		}
		is_taken = process_take(handshake, reply) == 0;
		break;
	case REDIS_STEP_LOAD:
		is_taken = reply->type == REDIS_REPLY_STRING && reply->len < REDIS_SHA_SIZE;
		if (is_taken)
			memcpy(handshake->sha, reply->str, reply->len + 1);
		break;
	}
	handshake->is_refused = !is_taken;
	if (!is_taken)
		snprintf(handshake->why, REDIS_WHY_SIZE, "%s replied something else",
			 names[handshake->step]);
	return is_taken ? 0 : -1;
}

void redis_handshake_begin(struct redis_handshake *handshake, enum redis_step first,
			   enum redis_step last)
{
	handshake->step = first;
	handshake->last = last;
	handshake->is_awaited = handshake->is_replica = handshake->is_refused = 0;
}

int redis_handshake_next(struct redis_handshake *handshake, const redisReply *reply,
			 const char *words[REDIS_HANDSHAKE_WORDS])
{
	const struct redis_url *url = handshake->url;
	const char *const commands[REDIS_STEPS][REDIS_HANDSHAKE_WORDS] = {
		[REDIS_STEP_AUTH] = { "AUTH", url->user ? url->user : url->password,
				      url->user ? url->password : NULL },
		[REDIS_STEP_SELECT] = { "SELECT", handshake->database },
		[REDIS_STEP_LEASE] = { "HMGET", MASTER_LEASE_KEY, "process", "term", "from",
				       "until" },
		[REDIS_STEP_PROCESS] = { "INFO", "server", "replication" },
		[REDIS_STEP_LOAD] = { "SCRIPT", "LOAD", handshake->script },
		[REDIS_STEP_PROBE] = { "EVALSHA", handshake->sha, "1", "coupon:{0}" },
	};
	int n = 0;

	if (handshake->is_awaited) {
		if (handshake_take(handshake, reply))
			return -1;
		handshake->step++;
	}
	if (handshake->step == REDIS_STEP_AUTH && !url->password)
		handshake->step++;
	if (handshake->step == REDIS_STEP_LEASE && url->sentinels_n == 0)
		handshake->step++;
	if (handshake->step > handshake->last)
		return 0;
	handshake->is_awaited = 1;
	snprintf(handshake->database, sizeof(handshake->database), "%d", url->database);
	while (n < REDIS_HANDSHAKE_WORDS && commands[handshake->step][n]) {
		words[n] = commands[handshake->step][n];
		n++;
	}
	return n;
}
