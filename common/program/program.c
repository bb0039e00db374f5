#include "common/program/program.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/postgres/postgres_session.h"
#include "common/program/weak_settings.h"
#include "common/program/wrap.h"
#include "common/rabbit/connection.h"
#include "common/redis/redis.h"
#include "common/redis/sentinel.h"
#include "common/trust.h"

#include <libpq-fe.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Defined in build/gen/version.c: what `git describe` prints; empty without a repository. */
extern const char program_source[];

void program_version_print(const char *name)
{
	if (*program_source)
		printf("%s %s (git %s)\n", name, PROGRAM_VERSION, program_source);
	else
		printf("%s %s\n", name, PROGRAM_VERSION);
}

void program_begin(void)
{
	struct rlimit limit;

	check(getrlimit(RLIMIT_CORE, &limit) == 0);
	limit.rlim_cur = 0; /* a command that is started may raise it again */
	check(setrlimit(RLIMIT_CORE, &limit) == 0);
	check(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL));
	/* Else OpenSSL asks the terminal for the pass phrase of sslkey, and waits. */
	PQsetSSLKeyPassHook_OpenSSL(PQdefaultSSLKeyPassHook_OpenSSL);
}

static const struct {
	const char *name, *help;
} service_options[] = {
	{ "-n", "check the settings and exit" },
	{ "--ready", "ask the running program whether it is ready, and exit" },
	{ "--help", "this text; --help settings: the settings" },
	{ "--version", "the version" },
};

#define SERVICE_OPTIONS_N (sizeof(service_options) / sizeof(service_options[0]))

static void service_help_print(const struct program_manual *manual)
{
	printf("Usage: %s [-n | --ready] [--SETTING VALUE]...\n\n", manual->name);
	wrap_print(manual->summary, 0, stdout);
	putchar('\n');
	for (size_t i = 0; i < SERVICE_OPTIONS_N; i++)
		printf("  %-10s %s\n", service_options[i].name, service_options[i].help);
	printf("\nSee %s(8).\n", manual->name);
}

static cJSON *service_options_list(void)
{
	cJSON *list = checked(cJSON_CreateArray());

	for (size_t i = 0; i < SERVICE_OPTIONS_N; i++) {
		cJSON *one = checked(cJSON_CreateObject());

		checked(cJSON_AddStringToObject(one, "name", service_options[i].name));
		checked(cJSON_AddStringToObject(one, "help", service_options[i].help));
		cJSON_AddItemToArray(list, one);
	}
	return list;
}

void program_settings_print(const char *name, enum config_program program)
{
	printf("Settings of %s, each by a flag or an environment variable. A text may\n"
	       "instead be the first line of a file: NAME_FILE is its path.\n\n",
	       name);
	config_help(program, stdout);
}

static void tables_print(const struct program_manual *manual)
{
	cJSON *object = checked(cJSON_CreateObject());
	char *text;

	checked(cJSON_AddStringToObject(object, "name", manual->name));
	checked(cJSON_AddStringToObject(object, "version", PROGRAM_VERSION));
	checked(cJSON_AddStringToObject(object, "summary", manual->summary));
	cJSON_AddItemToObject(object, "options",
			      manual->options ? manual->options() : service_options_list());
	cJSON_AddItemToObject(object, "settings", config_tables(manual->program));
	text = checked(cJSON_PrintUnformatted(object));
	puts(text);
	cJSON_free(text);
	cJSON_Delete(object);
}

void program_answer(const struct program_manual *manual, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *topic = NULL;

		if (strcmp(argv[i], "--version") == 0) {
			program_version_print(manual->name);
			exit(0);
		}
		if (strcmp(argv[i], "--help") != 0)
			continue;
		if (i + 1 < argc && argv[i + 1][0] != '-')
			topic = argv[i + 1];
		if (manual->help && (!topic || strcmp(topic, manual->topic) == 0))
			manual->help(topic);
		else if (!topic)
			service_help_print(manual);
		else if (strcmp(topic, "settings") == 0)
			program_settings_print(manual->name, manual->program);
		else if (strcmp(topic, "json") == 0)
			tables_print(manual);
		else
			log_fatal("there is no help on \"%s\": allowed are settings, json%s%s",
				  topic, manual->help ? ", " : "",
				  manual->help ? manual->topic : "");
		exit(0);
	}
}

int program_checks_only(int argc, char **argv)
{
	/* A misspelled flag may have a secret behind its name. */
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("unknown argument %.*s; see --help", (int)strcspn(argv[i], "="),
				  argv[i]);
	return argc > 1;
}

void program_trust_stores(const struct config *config)
{
	trust_authorities_set(TRUST_REDIS, config->redis_ca);
	sentinels_login_set(config->redis_sentinel_user, config->redis_sentinel_password);
	trust_authorities_set(TRUST_RABBITMQ, config->amqp_ca);
}

static void authorities_check(enum trust_store store)
{
	char error[TRUST_ERROR_SIZE];

	if (trust_check(store, error))
		log_fatal("%s", error);
}

/* The URLs hold passwords, so the messages do not repeat them. */
void program_check_urls(const struct config *config)
{
	char error[RABBIT_ERROR_SIZE];
	struct rabbit_url rabbit, api;
	struct redis_url redis;

	if (rabbit_url_parse(&rabbit, config->amqp_url, error))
		log_fatal("%s", error);
	redis_url_need(&redis, config->redis_url);
	if (config->rabbitmq_api && *config->rabbitmq_api) {
		if (rabbit_api_parse(&api, config->rabbitmq_api, error))
			log_fatal("%s", error);
		if (api.hosts[0].info.ssl)
			authorities_check(TRUST_RABBITMQ);
		rabbit_url_fini(&api);
	}
	postgres_url_check("DATABASE_URL", config->database_url);
	durability_is_synchronous(config);
	durability_is_acknowledged(config);
	if (config->database_read_url && *config->database_read_url)
		postgres_url_check("DATABASE_READ_URL", config->database_read_url);
	if (rabbit.hosts[0].info.ssl)
		authorities_check(TRUST_RABBITMQ);
	if (redis.is_tls)
		authorities_check(TRUST_REDIS);
	rabbit_url_fini(&rabbit);
	redis_url_fini(&redis);
}
