#include "common/program/config.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/program/key_file.h"
#include "common/program/setting_file.h"
#include "common/program/url_password.h"
#include "common/program/wrap.h"

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
#define FILES_N 2        /* of settings, the nearer one first */
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

/* The index of the setting with this name, which the table must have. */
static size_t env_find(const char *env)
{
	size_t i = 0;

	while (i < SETTINGS_N && strcmp(settings[i].env, env) != 0)
		i++;
	check(i < SETTINGS_N);
	return i;
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

/* The flags of the command line, each with the word that it is in, or NULL. */
static struct {
	const char *value, *given_by;
} flags[SETTINGS_N];

/* Sets a text to the first line of a file. */
static void file_set(struct config *config, const struct setting *setting, const char *given_by,
		     const char *path)
{
	char wrong[KEY_FILE_WRONG_SIZE];
	struct key_file file;

	if (key_file_load(&file, path, FILE_BYTES_MAX, wrong))
		log_fatal("%s is \"%s\": the file cannot be read: %s", given_by, path, wrong);
	file.text[strcspn(file.text, "\r\n")] = '\0';
	if (!*file.text)
		log_fatal("%s is \"%s\": the first line of the file is empty", given_by, path);
	setting_set(config, setting, given_by, file.text);
	key_file_wipe(&file);
}

enum source { FROM_NOTHING, FROM_FOLDER, FROM_CALLER };

/* Sets it to what the nearest source has, or to its default. */
static enum source setting_read(struct config *config, const struct setting *setting,
				const struct setting_file files[FILES_N])
{
	size_t i = (size_t)(setting - settings);
	char file_env[64], where[SETTING_FILE_WHERE_SIZE];
	const char *value = getenv(setting->env), *path = NULL;

	snprintf(file_env, sizeof(file_env), "%s" FILE_SUFFIX, setting->env);
	if (setting->fallback)
		path = getenv(file_env);
	if (flags[i].value) {
		setting_set(config, setting, flags[i].given_by, flags[i].value);
		return FROM_CALLER;
	}
	if (value && *value) {
		setting_set(config, setting, setting->env, value);
		return FROM_CALLER;
	}
	if (path && *path) {
		file_set(config, setting, file_env, path);
		return FROM_CALLER;
	}

	for (const struct setting_file *file = files; file < files + FILES_N; file++) {
		const struct setting_line *own = setting_file_find(file, setting->env, ""), *other;

		other = setting->fallback ? setting_file_find(file, setting->env, FILE_SUFFIX)
					  : NULL;
		if (own && *own->value)
			setting_set(config, setting, setting_file_where(file, own, where),
				    own->value);
		else if (other && *other->value)
			file_set(config, setting, setting_file_where(file, other, where),
				 other->value);
		if (own || other)
			return FROM_FOLDER;
	}
	return FROM_NOTHING;
}

/*
 * Puts passwords that are settings of their own into the URLs that have none. That of a file is not
 * sent to the store of a URL that a flag or the environment has.
 */
static void passwords_add(struct config *config, enum config_program program,
			  const enum source sources[SETTINGS_N])
{
	static const struct {
		const char *password, *url;
		enum url_kind kind;
	} pairs[] = {
		{ "REDIS_PASSWORD", "REDIS_URL", URL_REDIS },
		{ "AMQP_PASSWORD", "AMQP_URL", URL_RABBITMQ },
		{ "COUPON_RABBITMQ_API_PASSWORD", "COUPON_RABBITMQ_API", URL_RABBITMQ },
		{ "DATABASE_PASSWORD", "DATABASE_URL", URL_POSTGRES },
		{ "DATABASE_PASSWORD", "DATABASE_READ_URL", URL_POSTGRES },
		{ "DATABASE_ADMIN_PASSWORD", "DATABASE_ADMIN_URL", URL_POSTGRES },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		size_t of_password = env_find(pairs[i].password), of_url = env_find(pairs[i].url);
		const char *password = *text_at(config, &settings[of_password]);
		char **url = text_at(config, &settings[of_url]), *with;

		if (!(settings[of_url].programs & (int)program) || !*password || !**url ||
		    (sources[of_password] == FROM_FOLDER && sources[of_url] == FROM_CALLER))
			continue;
		if (url_password_add(pairs[i].kind, *url, password, &with))
			log_fatal("%s is given, but %s has no user: allowed is user@ before the "
				  "host, with or without a password",
				  pairs[i].password, pairs[i].url);
		if (!with)
			continue;
		free(*url);
		*url = with;
	}
}

/* Removes secrets of a file that would go to a store that a flag or the environment names. */
static void secrets_keep(struct config *config, const enum source sources[SETTINGS_N])
{
	/* migrate gives the roles of the PostgreSQL of its URL their passwords. */
	const char *owner = *config->database_admin_url ? "DATABASE_ADMIN_URL" : "DATABASE_URL";
	const struct {
		const char *secret, *url;
	} pairs[] = {
		{ "REDIS_SENTINEL_PASSWORD", "REDIS_URL" },
		{ "COUPON_GATEWAY_PASSWORD", owner },
		{ "COUPON_WORKER_PASSWORD", owner },
		{ "COUPON_OPERATOR_PASSWORD", owner },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		size_t secret = env_find(pairs[i].secret);

		if (sources[secret] == FROM_FOLDER &&
		    sources[env_find(pairs[i].url)] == FROM_CALLER)
			**text_at(config, &settings[secret]) = '\0';
	}
}

int config_flags_take(enum config_program program, int argc, char **argv,
		      int (*takes_value)(const char *flag))
{
	int left = 1;

	memset(flags, 0, sizeof(flags));
	for (int i = 1; i < argc; i++) {
		const char *name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
		size_t len = strcspn(name, "="), found;
		const struct setting *setting = len ? setting_find(program, name, len) : NULL;

		if (strcmp(argv[i], "--") == 0) {
			while (i < argc)
				argv[left++] = argv[i++];
		} else if (!setting) {
			argv[left++] = argv[i];
			if (takes_value && i + 1 < argc && takes_value(argv[i]))
				argv[left++] = argv[++i];
		} else {
			found = (size_t)(setting - settings);
			flags[found].given_by = argv[i];
			if (name[len] == '=')
				flags[found].value = name + len + 1;
			else if (i + 1 == argc)
				log_fatal("%s needs a value: %s", argv[i], setting->help);
			else
				flags[found].value = argv[++i];
		}
	}
	argv[left] = NULL;
	return left;
}

/*
 * What the files have that is no setting goes into the environment, as systemd does it: libpq reads
 * PGSSLMODE there. What names or opens the PostgreSQL of the files is not used for another one.
 */
static void files_export(const struct setting_file files[FILES_N],
			 const enum source sources[SETTINGS_N])
{
	static const char of_server[] =
		" PGHOSTADDR PGPASSFILE PGPASSWORD PGSERVICE PGSERVICEFILE ";
	int is_elsewhere = sources[env_find("DATABASE_URL")] == FROM_CALLER ||
			   sources[env_find("DATABASE_ADMIN_URL")] == FROM_CALLER;
	char word[NAME_SIZE];

	for (size_t i = 0; i < FILES_N; i++) {
		for (size_t n = files[i].n; n-- > 0;) { /* the last of equal names is first */
			const struct setting_line *line = &files[i].lines[n];

			snprintf(word, sizeof(word), " %s ", line->name);
			if (is_elsewhere && strstr(of_server, word))
				continue;
			if (!is_known(line->name, strlen(line->name)))
				check(setenv(line->name, line->value, 0) == 0);
		}
	}
}

void config_fill(struct config *config, enum config_program program)
{
	const size_t folder = env_find("COUPON_CONFIG_DIR");
	static const char *const names[FILES_N] = { "couponctl.conf", "couponmq.conf" };
	struct setting_file files[FILES_N] = { { 0 } };
	enum source sources[SETTINGS_N] = { FROM_NOTHING };

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < SETTINGS_N; i++)
		if (settings[i].fallback)
			*text_at(config, &settings[i]) = checked(strdup(settings[i].fallback));
		else
			*number_at(config, &settings[i]) = settings[i].number;

	if (settings[folder].programs & (int)program) {
		/* An empty variable is a value of this setting alone: no folder. */
		if (!flags[folder].value)
			flags[folder].value = getenv(settings[folder].env);
		if (setting_read(config, &settings[folder], files) == FROM_CALLER &&
		    *config->config_dir && access(config->config_dir, F_OK))
			log_fatal("%s is \"%s\": allowed is a folder, or nothing for no files",
				  settings[folder].env, config->config_dir);
		for (size_t i = 0; i < FILES_N && *config->config_dir; i++)
			setting_file_read(&files[i], config->config_dir, names[i]);
	}
	for (size_t i = 0; i < SETTINGS_N; i++)
		if (i != folder && (settings[i].programs & (int)program))
			sources[i] = setting_read(config, &settings[i], files);
	files_export(files, sources);
	for (size_t i = 0; i < FILES_N; i++)
		setting_file_wipe(&files[i]);
	passwords_add(config, program, sources);
	secrets_keep(config, sources);
}

int config_read(struct config *config, enum config_program program, int argc, char **argv,
		int (*takes_value)(const char *flag))
{
	int left = config_flags_take(program, argc, argv, takes_value);

	config_fill(config, program);
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
	/* All that the program reads is there: nothing comes from a file. */
	check(setenv("COUPON_CONFIG_DIR", "", 1) == 0);
}

void config_help(enum config_program program, FILE *out)
{
	for (size_t i = 0; i < SETTINGS_N; i++) {
		const struct setting *s = &settings[i];

		if (!(s->programs & (int)program))
			continue;
		fprintf(out, "  --%s, %s\n", s->flag, s->env);
		wrap_print(s->help, 6, out);
		if (s->fallback)
			fprintf(out, "      default: %s\n", *s->fallback ? s->fallback : "(empty)");
		else
			fprintf(out, "      default: %lld, from %lld to %lld\n",
				(long long)s->number, (long long)s->least, (long long)s->most);
	}
}

cJSON *config_tables(enum config_program program)
{
	cJSON *list = checked(cJSON_CreateArray());

	for (const struct setting *s = settings; s < settings + SETTINGS_N; s++) {
		cJSON *one;

		if (!(s->programs & (int)program))
			continue;
		one = checked(cJSON_CreateObject());
		cJSON_AddItemToArray(list, one);
		checked(cJSON_AddStringToObject(one, "name", s->env));
		checked(cJSON_AddStringToObject(one, "flag", s->flag));
		checked(cJSON_AddStringToObject(one, "help", s->help));
		if (s->fallback) {
			checked(cJSON_AddStringToObject(one, "default", s->fallback));
			continue;
		}
		checked(cJSON_AddNumberToObject(one, "default", (double)s->number));
		checked(cJSON_AddNumberToObject(one, "least", (double)s->least));
		checked(cJSON_AddNumberToObject(one, "most", (double)s->most));
	}
	return list;
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
