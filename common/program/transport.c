#include "common/program/transport.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/postgres/session.h"
#include "common/rabbit/connection.h"
#include "common/redis/redis.h"
#include "common/resolving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READABLE "whoever is between the machines can read and change what is sent, passwords too"
#define OPEN "whoever reaches it can issue to anyone, and read what is sent"

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

static void redis_check(const char *url)
{
	struct redis_url parts;
	int is_loopback;

	check(redis_url_parse(&parts, url) == 0);
	is_loopback = !parts.host || host_is_loopback(parts.host);
	for (size_t i = 0; i < parts.sentinels_n; i++)
		is_loopback &= host_is_loopback(parts.sentinels[i].name);
	if (!parts.is_tls && !is_loopback)
		snprintf(weak_add("redis", "REDIS_URL",
				  parts.host ? "rediss://" : "rediss+sentinel://")
				 ->value,
			 sizeof(weak[0].value), "%s",
			 parts.host ? "redis://" : "redis+sentinel://");
	redis_url_fini(&parts);
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

static void amqp_check(const char *text)
{
	char error[RABBIT_ERROR_SIZE];
	struct rabbit_url url;

	check(rabbit_url_parse(&url, text, error) == 0);
	rabbit_check(&url, "AMQP_URL", "amqp://", "amqps://");
}

static void api_check(const char *text)
{
	char error[RABBIT_ERROR_SIZE];
	struct rabbit_url url;

	if (!text || !*text)
		return;
	check(rabbit_api_parse(&url, text, error) == 0);
	rabbit_check(&url, "COUPON_RABBITMQ_API", "http://", "https://");
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
			  "COUPON_INSECURE=yes in a network in which everybody may do everything",
			  setting, address, wanted);
	added = weak_add(part, setting, wanted);
	added->effect = OPEN;
	snprintf(added->value, sizeof(added->value), "insecure");
	free(text);
}

static void listeners_check(const struct config *config, enum config_program program)
{
	static const char of_gateway[] = "COUPON_TLS_CERT, COUPON_TLS_KEY and COUPON_AUTH=required";
	int has_tls = *config->tls_cert != '\0';
	int is_safe = has_tls && program == CONFIG_GATEWAY && strcmp(config->auth, "required") == 0;

	if (strcmp(config->insecure, "yes") != 0 && strcmp(config->insecure, "no") != 0)
		log_fatal("COUPON_INSECURE is \"%s\": allowed are yes and no", config->insecure);
	if (program == CONFIG_GATEWAY) {
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
}

void transport_check(const struct config *config, enum config_program program)
{
	weak_n = 0;
	if (program == CONFIG_CTL) {
		postgres_check(*config->database_admin_url ? "DATABASE_ADMIN_URL" : "DATABASE_URL",
			       *config->database_admin_url ? config->database_admin_url
							   : config->database_url);
	} else {
		redis_check(config->redis_url);
		amqp_check(config->amqp_url);
		api_check(config->rabbitmq_api);
		postgres_check("DATABASE_URL", config->database_url);
	}
	if (program == CONFIG_GATEWAY)
		postgres_check("DATABASE_READ_URL", config->database_read_url);
	if (program != CONFIG_CTL)
		listeners_check(config, program);
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
