#include "common/program/weak_settings.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/postgres/postgres_session.h"
#include "common/rabbit/connection.h"
#include "common/redis/redis.h"
#include "common/resolving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF_SENTINELS "min-replicas-to-write" /* the last one of Redis */

/*
 * How the services must be set for the promises to hold, Redis first. `values` are the sufficient
 * ones, the recommended one first; `lost` is what a weaker one loses. docs/guides/deploy.md
 * describes them in full.
 *
 * RabbitMQ is not listed, because AMQP does not report settings. The programs declare its queues,
 * and RabbitMQ refuses a declaration that differs.
 */
static const struct {
	enum durability_part part;
	const char *setting;
	const char *values[4];
	const char *lost;
} table[] = {
	{ DURABILITY_REDIS,
	  "appendonly",
	  { "yes" },
	  "accepted receives are only in memory and are lost when Redis ends" },
	{ DURABILITY_REDIS,
	  "appendfsync",
	  { "always" },
	  "about the last second of accepted receives is lost when the machine dies" },
	{ DURABILITY_REDIS,
	  "maxmemory-policy",
	  { "noeviction" },
	  "a full Redis may evict a coupon and the slots of its users" },
	{ DURABILITY_REDIS,
	  OF_SENTINELS,
	  { "1", "2", "3", "4" },
	  "a master that is cut off accepts receives until its lease ends; these receives are "
	  "lost" },
	{ DURABILITY_POSTGRESQL,
	  "fsync",
	  { "on" },
	  "committed user coupons are lost, or the database is corrupt, when the machine dies" },
	{ DURABILITY_POSTGRESQL,
	  "synchronous_commit",
	  { "on", "remote_apply", "remote_write", "local" },
	  "the last committed user coupons are lost when PostgreSQL dies, although their messages "
	  "were acked" },
	{ DURABILITY_POSTGRESQL,
	  "full_page_writes",
	  { "on" },
	  "the database may be corrupt after the machine dies during a write" },
};

_Static_assert(sizeof(table) / sizeof(table[0]) == DURABILITY_N,
	       "DURABILITY_N counts the table's lines");

static const char *const part_names[] = { "redis", "postgresql" };

const char *durability_redis_setting(int i, int has_sentinels)
{
	if (i >= DURABILITY_N || table[i].part != DURABILITY_REDIS)
		return NULL;
	return has_sentinels || strcmp(table[i].setting, OF_SENTINELS) != 0 ? table[i].setting
									    : NULL;
}

int durability_is_synchronous(const struct config *config)
{
	const char *text = config->database_synchronous;

	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		log_fatal("COUPON_DATABASE_SYNCHRONOUS is \"%s\": allowed are yes and no", text);
	return *text == 'y';
}

int durability_is_acknowledged(const struct config *config)
{
	const char *text = config->redis_durability;

	if (strcmp(text, "read") != 0 && strcmp(text, "acknowledged") != 0)
		log_fatal("COUPON_REDIS_DURABILITY is \"%s\": allowed are read and acknowledged",
			  text);
	return *text == 'a';
}

static int is_weak(int i, const char *value)
{
	for (int k = 0; k < 4 && table[i].values[k]; k++)
		if (strcmp(table[i].values[k], value) == 0)
			return 0;
	return 1;
}

void durability_begin(struct durability *durability, enum durability_part part)
{
	durability->unknown[part] = 0;
	for (int i = 0; i < DURABILITY_N; i++)
		if (table[i].part == part)
			durability->values[i][0] = '\0';
}

void durability_tell(struct durability *durability, const char *setting, const char *value)
{
	for (int i = 0; i < DURABILITY_N; i++) {
		char *known = durability->values[i];

		if (strcmp(table[i].setting, setting) != 0 || strcmp(known, value) == 0)
			continue;
		snprintf(known, DURABILITY_VALUE_SIZE, "%s", value);
		if (is_weak(i, value) && !durability->is_silent)
			log_warn("weak_setting", LOG_S("part", part_names[table[i].part]),
				 LOG_S("setting", table[i].setting), LOG_S("value", value),
				 LOG_S("wanted", table[i].values[0]),
				 LOG_S("effect", table[i].lost));
	}
}

void durability_unknown(struct durability *durability, enum durability_part part, const char *why)
{
	if (part == DURABILITY_REDIS && durability->is_acknowledged)
		return;
	durability->unknown[part] = 1;
	if (durability->unknown_logged[part] || durability->is_silent)
		return;
	durability->unknown_logged[part] = 1;
	log_warn("setting_unknown", LOG_S("part", part_names[part]), LOG_S("error", why));
}

int durability_setting_read(const struct durability *durability, int i,
			    struct durability_setting *setting)
{
	const char *value = i < DURABILITY_N ? durability->values[i] : "";

	if (i >= DURABILITY_N)
		return -1;
	*setting = (struct durability_setting){ .part = table[i].part,
						.name = table[i].setting,
						.value = value,
						.wanted = table[i].values[0],
						.lost = table[i].lost,
						.is_weak = *value && is_weak(i, value) };
	return 0;
}

int durability_warnings(const struct durability *durability, cJSON *array)
{
	struct durability_setting one;
	int n = 0;

	for (int i = 0; durability_setting_read(durability, i, &one) == 0; i++) {
		n += one.is_weak;
		if (array && one.is_weak)
			json_sentence_add(array, "%s: %s is %s, wanted %s: %s",
					  part_names[one.part], one.name, one.value, one.wanted,
					  one.lost);
	}
	for (int part = DURABILITY_REDIS; part <= DURABILITY_POSTGRESQL; part++) {
		n += durability->unknown[part];
		if (array && durability->unknown[part])
			json_sentence_add(array,
					  "%s: the service does not show its settings: whether the "
					  "promises hold is unknown%s",
					  part_names[part],
					  part == DURABILITY_REDIS
						  ? "; check them another way, then set "
						    "COUPON_REDIS_DURABILITY=acknowledged"
						  : "");
	}
	return n;
}

/* ---- transport */

#define READABLE                                                                                 \
	"anyone on the network between the machines can read and change the traffic, including " \
	"passwords"
#define OPEN                                                                                     \
	"anyone who can reach the listener can issue coupons to anyone; traffic can be read on " \
	"the network"

struct weak {
	const char *part, *setting, *wanted, *effect;
	char value[256];
};

/* The weak settings of this process; constant after transport_check(). */
static struct weak weak[8]; /* of each URL and each listener one */
static size_t weak_n;

static struct weak *weak_add(const char *part, const char *setting, const char *wanted)
{
	check(weak_n < sizeof(weak) / sizeof(weak[0]));
	weak[weak_n] = (struct weak){
		.part = part, .setting = setting, .wanted = wanted, .effect = READABLE
	};
	return &weak[weak_n++];
}

/* Takes the URL. Of several hosts it names those elsewhere, as many as there is space for. */
static void rabbit_check(struct rabbit_url *url, const char *setting, const char *scheme,
			 const char *wanted)
{
	char names[sizeof(weak[0].value)] = "";
	size_t len = 0;

	for (size_t i = 0; i < url->hosts_n && len < sizeof(names); i++)
		if (!url->hosts[i].info.ssl && !host_is_loopback(url->hosts[i].info.host))
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
						len > 0 ? "," : "", url->hosts[i].info.host);
	if (len > 0)
		snprintf(weak_add("rabbitmq", setting, wanted)->value, sizeof(weak[0].value),
			 "%s%.*s", scheme, url->hosts_n > 1 ? (int)sizeof(names) : 0, names);
	rabbit_url_fini(url);
}

static void postgres_check(const char *setting, const char *url)
{
	char sslmode[POSTGRES_SSLMODE_SIZE];

	if (*url && postgres_url_is_weak(url, sslmode))
		snprintf(weak_add("postgresql", setting, "sslmode=verify-full")->value,
			 sizeof(weak[0].value), "sslmode=%s", sslmode);
}

/*
 * A listener that other machines reach must have TLS, and ask who is there, the gateway's by
 * COUPON_AUTH=required, the worker's by certificates: else the process ends with a sentence, unless
 * the operator answers for it.
 */
static void listener_check(const struct config *config, const char *part, const char *setting,
			   const char *address, int is_safe, const char *wanted)
{
	char *text = checked(strdup(address)), *host;
	struct weak *added;
	int port;

	if (strcmp(address, "off") == 0 || is_safe || config_address(text, &host, &port) ||
	    host_is_loopback(host)) {
		free(text);
		return;
	}
	if (strcmp(config->insecure, "yes") != 0)
		log_fatal("%s is \"%s\", which other machines can reach: it needs %s, or "
			  "COUPON_INSECURE=yes in a network where everyone may do everything",
			  setting, address, wanted);
	added = weak_add(part, setting, wanted);
	added->effect = OPEN;
	snprintf(added->value, sizeof(added->value), "insecure");
	free(text);
}

void transport_check(const struct config *config, enum config_program program)
{
	static const char of_gateway[] = "COUPON_TLS_CERT, COUPON_TLS_KEY and COUPON_AUTH=required";
	int has_tls, is_safe, is_loopback;
	char error[RABBIT_ERROR_SIZE];
	struct rabbit_url rabbit;
	struct redis_url redis;

	weak_n = 0;
	if (program == CONFIG_CTL) {
		postgres_check(*config->database_admin_url ? "DATABASE_ADMIN_URL" : "DATABASE_URL",
			       *config->database_admin_url ? config->database_admin_url
							   : config->database_url);
	} else {
		check(redis_url_parse(&redis, config->redis_url) == 0);
		is_loopback = !redis.host || host_is_loopback(redis.host);
		for (size_t i = 0; i < redis.sentinels_n; i++)
			is_loopback &= host_is_loopback(redis.sentinels[i].name);
		if (!redis.is_tls && !is_loopback)
			snprintf(weak_add("redis", "REDIS_URL",
					  redis.host ? "rediss://" : "rediss+sentinel://")
					 ->value,
				 sizeof(weak[0].value), "%s",
				 redis.host ? "redis://" : "redis+sentinel://");
		redis_url_fini(&redis);

		check(rabbit_url_parse(&rabbit, config->amqp_url, error) == 0);
		rabbit_check(&rabbit, "AMQP_URL", "amqp://", "amqps://");
		if (config->rabbitmq_api && *config->rabbitmq_api) {
			check(rabbit_api_parse(&rabbit, config->rabbitmq_api, error) == 0);
			rabbit_check(&rabbit, "COUPON_RABBITMQ_API", "http://", "https://");
		}
		postgres_check("DATABASE_URL", config->database_url);
	}
	if (program == CONFIG_GATEWAY)
		postgres_check("DATABASE_READ_URL", config->database_read_url);

	if (program != CONFIG_CTL && strcmp(config->insecure, "yes") != 0 &&
	    strcmp(config->insecure, "no") != 0)
		log_fatal("COUPON_INSECURE is \"%s\": allowed are yes and no", config->insecure);
	has_tls = program != CONFIG_CTL && *config->tls_cert != '\0';
	if (program == CONFIG_GATEWAY) {
		is_safe = has_tls && strcmp(config->auth, "required") == 0;
		listener_check(config, "gateway", "COUPON_LISTEN", config->listen, is_safe,
			       of_gateway);
		listener_check(config, "gateway", "COUPON_HTTP_LISTEN", config->http_listen,
			       is_safe, of_gateway);
	} else if (program == CONFIG_WORKER) {
		listener_check(config, "worker", "COUPON_WORKER_HTTP_LISTEN",
			       config->worker_http_listen, has_tls && *config->tls_client_ca,
			       "COUPON_TLS_CERT, COUPON_TLS_KEY and COUPON_TLS_CLIENT_CA");
	} else if (program == CONFIG_ADMIN) { /* it asks for keys in any case */
		listener_check(config, "admin", "COUPON_ADMIN_LISTEN", config->admin_listen,
			       has_tls, "COUPON_TLS_CERT and COUPON_TLS_KEY");
	}

	for (size_t i = 0; i < weak_n; i++)
		log_warn("weak_setting", LOG_S("part", weak[i].part),
			 LOG_S("setting", weak[i].setting), LOG_S("value", weak[i].value),
			 LOG_S("wanted", weak[i].wanted), LOG_S("effect", weak[i].effect));
}

int transport_warnings(cJSON *array)
{
	for (size_t i = 0; array && i < weak_n; i++)
		json_sentence_add(array, "%s: %s is %s, wanted %s: %s", weak[i].part,
				  weak[i].setting, weak[i].value, weak[i].wanted, weak[i].effect);
	return (int)weak_n;
}
