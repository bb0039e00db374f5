#include "common/program/config.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/program/key_file.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GATEWAY CONFIG_GATEWAY
#define WORKER CONFIG_WORKER
#define CTL CONFIG_CTL
#define RUSH CONFIG_RUSH
#define ADMIN CONFIG_ADMIN
#define FILE_BYTES_MAX 65536
#define PREFIX "COUPON_" /* of the names of most variables */
#define FILE_SUFFIX "_FILE"
#define FAULT "COUPON_FAULT" /* common/fault.h, of test builds */
#define NAME_SIZE 256
#define ALL (CONFIG_GATEWAY | CONFIG_WORKER | CONFIG_CTL | CONFIG_RUSH | CONFIG_ADMIN)

struct setting {
	const char *env;
	const char *flag;
	const char *help;
	const char *fallback; /* text; NULL: a number */
	int programs;
	size_t offset;
	int64_t number;
	int64_t least;
	int64_t most;
};

static const struct setting settings[] = {
#define SETTING_TEXT(field, env, flag, programs, fallback, help) \
	{ env, flag, help, fallback, programs, offsetof(struct config, field), 0, 0, 0 },
#define SETTING_NUMBER(field, env, flag, programs, fallback, least, most, help) \
	{ env, flag, help, NULL, programs, offsetof(struct config, field), fallback, least, most },
#include "common/program/setting_table.h"
#undef SETTING_TEXT
#undef SETTING_NUMBER
};

#define SETTINGS_N (sizeof(settings) / sizeof(settings[0]))

static char **text_at(struct config *config, const struct setting *setting)
{
	return (char **)(void *)((char *)config + setting->offset);
}

static int64_t *number_at(struct config *config, const struct setting *setting)
{
	return (int64_t *)(void *)((char *)config + setting->offset);
}

static void setting_set(struct config *config, const struct setting *setting, const char *given_by,
			const char *value)
{
	char *end;
	long long number;

	if (setting->fallback) {
		free(*text_at(config, setting));
		*text_at(config, setting) = checked(strdup(value));
		return;
	}
	errno = 0;
	number = strtoll(value, &end, 10);
	if (errno || end == value || *end || number < setting->least || number > setting->most)
		log_fatal("%s is \"%s\": allowed is an integer from %lld to %lld", given_by, value,
			  (long long)setting->least, (long long)setting->most);
	*number_at(config, setting) = number;
}

/* The setting whose flag is the first `len` bytes of `name`. */
static const struct setting *setting_find(enum config_program program, const char *name, size_t len)
{
	for (size_t i = 0; i < SETTINGS_N; i++)
		if ((settings[i].programs & (int)program) && strlen(settings[i].flag) == len &&
		    memcmp(settings[i].flag, name, len) == 0)
			return &settings[i];
	return NULL;
}

/* Sets each setting of the program to its default, or to what the environment has. */
static void environment_read(struct config *config, enum config_program program)
{
	memset(config, 0, sizeof(*config));
	for (const struct setting *setting = settings; setting < settings + SETTINGS_N; setting++) {
		char file_env[64], wrong[KEY_FILE_WRONG_SIZE];
		const char *value, *path;
		struct key_file file;

		if (setting->fallback)
			*text_at(config, setting) = checked(strdup(setting->fallback));
		else
			*number_at(config, setting) = setting->number;
		if (!(setting->programs & (int)program))
			continue;
		value = getenv(setting->env);
		if (value && *value)
			setting_set(config, setting, setting->env, value);
		if (!setting->fallback || (value && *value))
			continue;

		/* The value of a text is the first line of a file. */
		snprintf(file_env, sizeof(file_env), "%s" FILE_SUFFIX, setting->env);
		path = getenv(file_env);
		if (!path || !*path)
			continue;
		if (key_file_load(&file, path, FILE_BYTES_MAX, wrong))
			log_fatal("%s is \"%s\": the file cannot be read: %s", file_env, path,
				  wrong);
		file.text[strcspn(file.text, "\r\n")] = '\0';
		if (!*file.text)
			log_fatal("%s is \"%s\": the first line of the file is empty", file_env,
				  path);
		setting_set(config, setting, file_env, file.text);
		key_file_wipe(&file);
	}
}

int config_read(struct config *config, enum config_program program, int argc, char **argv,
		int (*takes_value)(const char *flag))
{
	int left = 1;

	environment_read(config, program);
	for (int i = 1; i < argc; i++) {
		const char *name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
		size_t len = strcspn(name, "=");
		const struct setting *setting = len ? setting_find(program, name, len) : NULL;

		if (strcmp(argv[i], "--") == 0) {
			while (i < argc)
				argv[left++] = argv[i++];
		} else if (!setting) {
			argv[left++] = argv[i];
			if (takes_value && i + 1 < argc && takes_value(argv[i]))
				argv[left++] = argv[++i];
		} else if (name[len] == '=') {
			setting_set(config, setting, argv[i], name + len + 1);
		} else {
			if (i + 1 == argc)
				log_fatal("%s needs a value: %s", argv[i], setting->help);
			setting_set(config, setting, argv[i], argv[i + 1]);
			i++;
		}
	}
	argv[left] = NULL;
	return left;
}

void config_free(struct config *config)
{
	for (size_t i = 0; i < SETTINGS_N; i++)
		if (settings[i].fallback)
			free(*text_at(config, &settings[i]));
}

const char *config_given(const struct config *config, const char *env)
{
	size_t i = 0;
	const char *value;

	while (i < SETTINGS_N && strcmp(settings[i].env, env) != 0)
		i++;
	check(i < SETTINGS_N && settings[i].fallback);
	value = *(char *const *)(const void *)((const char *)config + settings[i].offset);
	return strcmp(value, settings[i].fallback) == 0 ? "" : value;
}

void config_export(const struct config *config, enum config_program own,
		   enum config_program program)
{
	for (size_t i = 0; i < SETTINGS_N; i++) {
		const struct setting *s = &settings[i];
		const char *value = (const char *)config + s->offset;
		char number[NUMBER_SIZE];

		if (!(s->programs & (int)own) || !(s->programs & (int)program))
			continue;
		if (s->fallback)
			value = *(char *const *)(const void *)value;
		else
			value = number_text(*(const int64_t *)(const void *)value, number);
		check(setenv(s->env, value, 1) == 0);
	}
}

void config_help(enum config_program program, FILE *out)
{
	for (size_t i = 0; i < SETTINGS_N; i++) {
		const struct setting *s = &settings[i];

		if (!(s->programs & (int)program))
			continue;
		fprintf(out, "  --%s, %s\n      %s\n", s->flag, s->env, s->help);
		if (s->fallback)
			fprintf(out, "      default: %s\n", *s->fallback ? s->fallback : "(empty)");
		else
			fprintf(out, "      default: %lld, from %lld to %lld\n",
				(long long)s->number, (long long)s->least, (long long)s->most);
	}
}

/* Whether it is a setting of any program, or its file: an environment may serve them all. */
static int is_known(const char *name, size_t len)
{
	if (len == strlen(FAULT) && memcmp(name, FAULT, len) == 0)
		return 1;
	for (size_t i = 0; i < SETTINGS_N; i++) {
		size_t own = strlen(settings[i].env);

		if (len >= own && memcmp(name, settings[i].env, own) == 0 &&
		    (len == own || (settings[i].fallback && len == own + strlen(FILE_SUFFIX) &&
				    memcmp(name + own, FILE_SUFFIX, len - own) == 0)))
			return 1;
	}
	return 0;
}

void config_log(const struct config *config, const char *name)
{
	static const char *const levels[] = { "debug", "info", "warn", "error" };
	int as_json = strcmp(config->log_format, "json") == 0, level = 0;

	if (trace_init(config->trace))
		log_fatal("COUPON_TRACE is \"%s\": allowed are call, delivery, lookup, redis and "
			  "all, joined by commas",
			  config->trace);
	if (!as_json && strcmp(config->log_format, "text") != 0)
		log_fatal("COUPON_LOG_FORMAT is \"%s\": allowed are text and json",
			  config->log_format);
	while (level < 4 && strcmp(config->log_level, levels[level]) != 0)
		level++;
	if (level == 4)
		log_fatal("COUPON_LOG_LEVEL is \"%s\": allowed are debug, info, warn and error",
			  config->log_level);
	log_init(name, (enum log_level)level, as_json);

	/* A setting that is misspelled would be without effect in silence. */
	for (char **variable = environ; *variable; variable++) {
		size_t len = strcspn(*variable, "=");
		char unknown[NAME_SIZE];

		if (strncmp(*variable, PREFIX, strlen(PREFIX)) != 0 || is_known(*variable, len))
			continue;
		snprintf(unknown, sizeof(unknown), "%.*s", (int)len, *variable);
		log_warn("unknown_setting", LOG_S("name", unknown),
			 LOG_S("why", "no setting has this name; the variable has no effect"));
	}
}

int config_address(char *text, char **host, int *port)
{
	char *colon = strrchr(text, ':'), *end;
	long number;

	if (!colon)
		return -1;
	errno = 0;
	number = strtol(colon + 1, &end, 10);
	if (errno || colon[1] < '0' || colon[1] > '9' || *end || number < 1 || number > 65535)
		return -1;
	*port = (int)number;
	*colon = '\0';
	*host = text;
	if (text[0] == '[' && colon > text && colon[-1] == ']') {
		colon[-1] = '\0';
		*host = text + 1;
	}
	return **host ? 0 : -1;
}
