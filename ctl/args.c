#include "ctl/args.h"

#include "codes/form.h"
#include "common/array.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/program/wrap.h"
#include "ctl/say.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void args_fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	say_list(format, list, 0);
	va_end(list);
	exit(CTL_INVALID);
}

/*
 * Ends the process unless the text is plain: it may be stored, and shown on the terminals of
 * others. `what` names the text.
 */
static void text_check(const char *what, const char *text)
{
	if (!text_is_plain(text, strlen(text)))
		args_fail("%s is \"%s\": allowed is text in UTF-8 without control characters", what,
			  text);
}

static const struct option json_option =
	SWITCH("json", "print the result as JSON: one object, or one object a line for a list");

/* The index in `values` of the option whose name is the first `len` bytes of `name`, or -1. */
static int option_find(const struct command *command, const char *name, size_t len)
{
	if (!command->has_no_json && len == 4 && memcmp(name, json_option.name, len) == 0)
		return ARGS_OPTIONS_MAX;
	for (int i = 0; command->options && command->options[i].name; i++) {
		check(i < ARGS_OPTIONS_MAX);
		if (strlen(command->options[i].name) == len &&
		    memcmp(command->options[i].name, name, len) == 0)
			return i;
	}
	return -1;
}

int args_takes_value(const struct command *command, const char *word)
{
	int i = strncmp(word, "--", 2) == 0 ? option_find(command, word + 2, strlen(word + 2)) : -1;

	return i >= 0 && i < ARGS_OPTIONS_MAX && command->options[i].value;
}

int args_name_len(const struct command *command)
{
	const char *option = strstr(command->name, " --");

	return option ? (int)(option - command->name) : (int)strlen(command->name);
}

const struct command *args_mode(const struct command *command, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		const struct command *const *mode = command->modes;
		int takes_value = args_takes_value(command, argv[i]);

		if (command->takes_words && strcmp(argv[i], "--") == 0)
			break;
		for (; mode && *mode; mode++) {
			const char *option = strstr((*mode)->name, "--");

			if (strncmp(argv[i], option, strlen(option)) == 0 &&
			    strchr("=", argv[i][strlen(option)]))
				return *mode;
			takes_value |= args_takes_value(*mode, argv[i]);
		}
		i += takes_value;
	}
	return command;
}

void args_option(struct args *args, const struct option *option, const char *value)
{
	int i = option_find(args->command, option->name, strlen(option->name));

	if (args->values[i])
		args_fail("%s is given twice", say_option(option->name));
	args->values[i] = value;
	if (!option->value)
		return;
	/*
	 * JSON may have lines, a pasted word the end of its line, and a file any name. What reads
	 * an id names the wrong byte.
	 */
	if (strcmp(option->value, "FILE") != 0 && strcmp(option->value, "JSON") != 0 &&
	    strcmp(option->value, "ID") != 0 && strcmp(option->value, "USER") != 0 &&
	    strcmp(option->value, "WORD") != 0)
		text_check(say_option(option->name), value);
}

void args_argument(struct args *args, char *word)
{
	const struct command *command = args->command;
	const char *name = command->argument;
	size_t len = strlen(word), kept = 0, ignored;
	char *copy = checked(strdup(word));
	int most = name ? 1 : 0, is_code;

	/* A space is between two names of arguments; … stands for any number of them. */
	for (const char *p = name; p && *p; p++)
		most += *p == ' ';
	if (most == 0)
		args_fail("%s takes no argument, but got \"%s\"", command->name, word);
	if (args->arguments_n == most && !strstr(name, "…"))
		args_fail("%s takes only %s, but also got \"%s\"", command->name,
			  most == 1 ? "one argument" : name, word);

	/* A pasted code may have tabs and ends of lines, which are never stored. */
	is_code = strstr(name, "CODE") != NULL;
	for (size_t i = 0; i < len; i += ignored ? ignored : 1) {
		ignored = is_code ? code_ignored_length(word + i, len - i) : 0;
		if (!ignored)
			copy[kept++] = word[i];
	}
	copy[kept] = '\0';
	if (!strstr(name, "FILE"))
		text_check(name, copy);
	free(copy);
	args->arguments = array_room(args->arguments, (size_t)args->arguments_n,
				     &args->arguments_size, sizeof(*args->arguments));
	args->arguments[args->arguments_n++] = word;
	args->argument = args->arguments[0];
}

void args_begin(struct args *args, const struct command *command)
{
	memset(args, 0, sizeof(*args));
	args->command = command;
}

void args_json(struct args *args)
{
	args->values[ARGS_OPTIONS_MAX] = "";
}

void args_end(struct args *args)
{
	const char *missing = args->command->argument;

	/* The name of the first missing argument follows as many spaces as there are arguments. */
	if (!missing || missing[0] == '[')
		return;
	for (int i = 0; i < args->arguments_n && missing; i++)
		missing = strchr(missing, ' ') ? strchr(missing, ' ') + 1 : NULL;
	if (missing)
		args_fail("%s needs %s%s", args->command->name, missing,
			  say_help(args->command->name));
}

void args_read(struct args *args, const struct command *command, int argc, char **argv)
{
	args_begin(args, command);
	while (argc > 0) {
		int used = 1;

		if (command->takes_words && strcmp(argv[0], "--") == 0) {
			args->words = argv + 1;
			break;
		}
		if (strncmp(argv[0], "--", 2) == 0) {
			const char *name = argv[0] + 2;
			size_t len = strcspn(name, "=");
			int i = option_find(args->command, name, len);
			const struct option *option;

			if (i < 0)
				args_fail("%s has no option %.*s%s", args->command->name,
					  (int)(len + 2), argv[0], say_help(args->command->name));
			option = i == ARGS_OPTIONS_MAX ? &json_option : &args->command->options[i];
			if (!option->value && name[len])
				args_fail("%s takes no value", say_option(option->name));
			if (option->value && !name[len] && argc < 2)
				args_fail("%s needs a value: %s", say_option(option->name),
					  option->help);
			args_option(args, option,
				    !option->value ? ""
				    : name[len]    ? name + len + 1
						   : argv[1]);
			used = option->value && !name[len] ? 2 : 1;
		} else {
			args_argument(args, argv[0]);
		}
		argc -= used;
		argv += used;
	}
	args_end(args);
}

static void option_print(const struct option *option, FILE *out)
{
	fprintf(out, "  --%s%s%s\n", option->name, option->value ? " " : "",
		option->value ? option->value : "");
	wrap_print(option->help, 6, out);
}

void args_options_print(const struct command *command, FILE *out)
{
	for (const struct option *o = command->options; o && o->name; o++) {
		option_print(o, out);
		if (strcmp(o->value ? o->value : "", "LIST") != 0)
			continue;
		for (size_t i = 0; o->words && o->words[i]; i++) /* four a line */
			fprintf(out, "%s%s%s", i % 4 ? "" : "      ", o->words[i],
				!o->words[i + 1] ? "\n"
				: i % 4 == 3     ? ",\n"
						 : ", ");
	}
	if (!command->has_no_json)
		option_print(&json_option, out);
}

static void option_add(cJSON *list, const struct option *option)
{
	cJSON *one = checked(cJSON_CreateObject()), *words;

	cJSON_AddItemToArray(list, one);
	checked(cJSON_AddStringToObject(one, "name", option->name));
	checked(option->value ? cJSON_AddStringToObject(one, "value", option->value)
			      : cJSON_AddNullToObject(one, "value"));
	checked(cJSON_AddStringToObject(one, "help", option->help));
	words = checked(cJSON_AddArrayToObject(one, "words"));
	for (size_t i = 0; option->words && option->words[i]; i++)
		cJSON_AddItemToArray(words, checked(cJSON_CreateString(option->words[i])));
}

cJSON *args_options_list(const struct command *command)
{
	cJSON *list = checked(cJSON_CreateArray());

	for (const struct option *o = command->options; o && o->name; o++)
		option_add(list, o);
	if (!command->has_no_json)
		option_add(list, &json_option);
	return list;
}

const char *args_text(const struct args *args, const char *name)
{
	int i = option_find(args->command, name, strlen(name));

	check(i >= 0);
	return args->values[i];
}

void args_ask(const struct args *args, const char *what, ...)
{
	char answer[16] = "";
	va_list list;

	if (args_text(args, "yes") || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return;
	va_start(list, what);
	vfprintf(stderr, what, list);
	va_end(list);
	fputs("\nGo on? (yes/no) ", stderr);
	fflush(stderr);
	if (fgets(answer, sizeof(answer), stdin) &&
	    (strcasecmp(answer, "yes\n") == 0 || strcasecmp(answer, "y\n") == 0))
		return;
	if (!*answer)
		fputc('\n', stderr);
	log_fatal("nothing was changed: the answer was not yes");
}

int args_has(const struct args *args, const char *name)
{
	return args_text(args, name) != NULL;
}

int args_takes_none(const struct args *args, const char *name)
{
	return args->command->options[option_find(args->command, name, strlen(name))].takes_none;
}

const char *args_required(const struct args *args, const char *name)
{
	const char *value = args_text(args, name);

	if (!value)
		args_fail("%s needs %s%s", args->command->name, say_option(name),
			  say_help(args->command->name));
	return value;
}

const char *args_bytes(const struct args *args, const char *name, size_t most)
{
	const char *value = args_text(args, name);

	if (value && (!*value || strlen(value) > most))
		args_fail("%s is \"%s\": allowed are 1 to %zu bytes", say_option(name), value,
			  most);
	return value;
}

int64_t args_number(const struct args *args, const char *name, int64_t least, int64_t most,
		    int64_t fallback)
{
	const char *value = args_text(args, name);
	const char *digits;
	long long number;
	char *end;

	if (!value)
		return fallback;
	errno = 0;
	number = strtoll(value, &end, 10);
	digits = value + (*value == '-');
	if (errno || !isdigit((unsigned char)*digits) || (*digits == '0' && digits[1]) || *end ||
	    number < least || number > most)
		args_fail("%s is \"%s\": allowed is an integer from %lld to %lld", say_option(name),
			  value, (long long)least, (long long)most);
	return number;
}

int64_t args_count(const struct args *args, int64_t fallback)
{
	return args_number(args, "count", 1, PAGE_COUNT_MAX, fallback);
}

int64_t args_duration_s(const struct args *args, const char *name, int most_days,
			int64_t fallback_s)
{
	static const char units[] = "smhd";
	static const int64_t seconds_of[] = { 1, 60, 3600, 86400 };
	const char *text = args_text(args, name), *unit;
	int64_t number, most_s = most_days * seconds_of[3];
	char *end;

	if (!text)
		return fallback_s;
	errno = 0;
	number = strtoll(text, &end, 10);
	unit = *end && !end[1] ? strchr(units, *end) : NULL;
	if (errno || !isdigit((unsigned char)*text) || !unit || number > most_s ||
	    number * seconds_of[unit - units] > most_s)
		args_fail("%s is \"%s\": allowed is a duration in s, m, h or d, from 0s to %dd",
			  say_option(name), text, most_days);
	return number * seconds_of[unit - units];
}

const char *args_currency(const struct args *args)
{
	const char *text = args_text(args, "currency");

	if (text && (strlen(text) != 3 || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 3))
		args_fail("--currency is \"%s\": allowed are three capital letters as of ISO 4217, "
			  "for example EUR",
			  text);
	return text;
}

/* The integer of an amount that is given in the smallest unit; NULL: it is written for people. */
static const char *minor_of(const char *text)
{
	const size_t len = strlen(ARGS_MINOR);

	return strncmp(text, ARGS_MINOR, len) == 0 ? text + len : NULL;
}

int64_t args_money(const struct args *args, const char *name, const char *currency, int64_t least)
{
	const char *text = args_required(args, name), *minor = minor_of(text);
	char least_text[MONEY_SIZE], most_text[MONEY_SIZE], digits[80] = "without a point";
	int64_t units;

	if (minor) {
		if (number_parse(minor, JSON_INTEGER_MAX, &units) || units < least)
			args_fail("%s is \"%s\": allowed is an integer from %lld to %lld, in the "
				  "smallest unit of the currency",
				  say_option(name), minor, (long long)least,
				  (long long)JSON_INTEGER_MAX);
		return units;
	}
	if (!currency)
		args_fail("%s is \"%s\": an amount needs --currency", say_option(name), text);
	if (money_digits(currency) > 0)
		snprintf(digits, sizeof(digits),
			 "with %d digits after the point, or without a point",
			 money_digits(currency));
	if (money_parse(text, currency, &units) || units < least)
		args_fail("%s is \"%s\": allowed is %s to %s %s, %s", say_option(name), text,
			  money_text(least, currency, least_text),
			  money_text(JSON_INTEGER_MAX, currency, most_text), currency, digits);
	return units;
}

const char *args_money_text(const struct args *args, const char *name, int64_t units,
			    const char *currency, char out[MONEY_SIZE])
{
	if (!minor_of(args_required(args, name)))
		return money_text(units, currency, out);
	snprintf(out, MONEY_SIZE, "%lld", (long long)units);
	return out;
}

static int64_t id_read(const char *what, const char *value)
{
	int64_t id;

	if (!value)
		return 0;
	if (id_parse(value, strlen(value), &id))
		args_fail("%s is \"%s\": allowed is an integer from 1 to 9223372036854775807", what,
			  value);
	return id;
}

int64_t args_id(const struct args *args, const char *name)
{
	return id_read(say_option(name), args_text(args, name));
}

int64_t args_id_argument(const struct args *args)
{
	return id_read("ID", args->argument);
}

int args_choice(const struct args *args, const char *name, int fallback)
{
	const char *value = args_text(args, name);
	const char *const *words =
		args->command->options[option_find(args->command, name, strlen(name))].words;
	char allowed[128] = "";

	for (int i = 0; value && words[i]; i++) {
		if (strcmp(words[i], value) == 0)
			return i;
		snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s%s",
			 i == 0         ? ""
			 : words[i + 1] ? ", "
					: " and ",
			 words[i]);
	}
	if (value)
		args_fail("%s is \"%s\": allowed are %s", say_option(name), value, allowed);
	return fallback;
}

void args_coupon_user(const struct args *args, struct receive *receive)
{
	const char *text;
	char why[USER_ID_WHY_SIZE];

	args_required(args, "coupon");
	receive->coupon = args_id(args, "coupon");
	text = args_required(args, "user");
	if (user_id_parse(&receive->user, text, strlen(text)) == 0)
		return;
	user_id_why(text, strlen(text), why);
	args_fail("--user is \"%s\": %s", text, why);
}

void args_receive_argument(const struct args *args, struct receive *receive)
{
	if (receive_parse(receive, args->argument, strlen(args->argument)))
		args_fail("RECEIVE is \"%s\": allowed is <coupon>.<user>.<batch>.<index>, as in "
			  "the answer",
			  args->argument);
}

void args_receive(const struct args *args, struct receive *receive)
{
	const char *text = args->argument;

	if (text && (args_has(args, "coupon") || args_has(args, "user")))
		args_fail("%s takes a RECEIVE, or --coupon and --user, not both",
			  args->command->name);
	if (text)
		args_receive_argument(args, receive);
	else
		args_coupon_user(args, receive);
}
