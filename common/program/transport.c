#include "common/program/transport.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/postgres/tls.h"
#include "common/rabbit/connection.h"
#include "common/redis/redis.h"
#include "common/resolving.h"

#include <stdio.h>
#include <stdlib.h>

#define EFFECT "whoever is between the machines can read and change what is sent, passwords too"

struct weak {
	const char *part, *setting, *wanted;
	char value[sizeof("sslmode=") + POSTGRES_SSLMODE_SIZE];
};

/* Of this process; constant after transport_check(). */
static struct weak weak[4]; /* of each URL one */
static size_t weak_n;

static struct weak *weak_add(const char *part, const char *setting, const char *wanted)
{
	check(weak_n < sizeof(weak) / sizeof(weak[0]));
	weak[weak_n] = (struct weak){ .part = part, .setting = setting, .wanted = wanted };
	return &weak[weak_n++];
}

static void redis_check(const char *url)
{
	struct redis_url parts;

	check(redis_url_parse(&parts, url) == 0);
	if (!parts.is_tls && !host_is_loopback(parts.host))
		snprintf(weak_add("redis", "REDIS_URL", "rediss://")->value, sizeof(weak[0].value),
			 "redis://");
	redis_url_fini(&parts);
}

static void rabbit_check(const char *url)
{
	char *host;
	int is_tls;

	check(rabbit_url_is_right(url, &is_tls, &host));
	if (!is_tls && !host_is_loopback(host))
		snprintf(weak_add("rabbitmq", "AMQP_URL", "amqps://")->value, sizeof(weak[0].value),
			 "amqp://");
	free(host);
}

static void postgres_check(const char *setting, const char *url)
{
	char sslmode[POSTGRES_SSLMODE_SIZE];

	if (*url && postgres_url_is_weak(url, sslmode))
		snprintf(weak_add("postgresql", setting, "sslmode=verify-full")->value,
			 sizeof(weak[0].value), "sslmode=%s", sslmode);
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
		rabbit_check(config->amqp_url);
		postgres_check("DATABASE_URL", config->database_url);
	}
	if (program == CONFIG_GATEWAY)
		postgres_check("DATABASE_READ_URL", config->database_read_url);
	for (size_t i = 0; i < weak_n; i++)
		log_warn("weak_setting", LOG_S("part", weak[i].part),
			 LOG_S("setting", weak[i].setting), LOG_S("value", weak[i].value),
			 LOG_S("wanted", weak[i].wanted), LOG_S("effect", EFFECT));
}

int transport_warnings(cJSON *array)
{
	for (size_t i = 0; array && i < weak_n; i++)
		json_sentence_add(array, "%s: %s is %s, wanted %s: %s", weak[i].part,
				  weak[i].setting, weak[i].value, weak[i].wanted, EFFECT);
	return (int)weak_n;
}
