#include "common/log/service_version.h"

#include "common/log/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define VERSION_SIZE 64

static const char *const names[] = { [SERVICE_REDIS] = "redis",
				     [SERVICE_RABBITMQ] = "rabbitmq",
				     [SERVICE_POSTGRESQL] = "postgresql" };

static enum log_level level = LOG_LEVEL_DEBUG;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char logged[sizeof(names) / sizeof(names[0])][VERSION_SIZE]; /* "": none yet */

void service_version_init(void)
{
	level = LOG_LEVEL_INFO;
}

void service_version_log(enum service service, const char *product, const char *version)
{
	char now[VERSION_SIZE], before[VERSION_SIZE];

	if (!*version)
		return;
	snprintf(now, sizeof(now), "%s %s", product, version);
	pthread_mutex_lock(&mutex);
	memcpy(before, logged[service], sizeof(before));
	memcpy(logged[service], now, sizeof(now));
	pthread_mutex_unlock(&mutex);
	if (strcmp(before, now) == 0)
		return;
	log_event(level, "service_version",
		  (struct log_field[]){ LOG_S("service", names[service]),
					LOG_S("version", now),
					*before ? (struct log_field)LOG_S("before", before)
						: (struct log_field){ 0 },
					{ 0 } });
}
