#include "common/log/log.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log_output.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* reserved at the end of a line, so that a line that is cut is still well-formed */
#define LINE_RESERVE 128
#define EVENTS_MAX 128

struct line {
	char text[LOG_LINE_SIZE];
	size_t len;
};

/* The number of lines of one event in the second that began at `since_ms`. */
struct event_rate {
	char event[48];
	int64_t since_ms;
	int written;
	int64_t suppressed;
};

static const char *const level_names[] = { "debug", "info", "warn", "error" };

static const char *log_program = "couponmq";
static int fatal_status = 1;
static enum log_level log_least = LOG_LEVEL_INFO;
static int log_as_json;
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct event_rate log_rates[EVENTS_MAX];

/* The rate of this event; events beyond the table share its last entry. */
static struct event_rate *rate_find(const char *event)
{
	size_t i = 0;

	while (i < EVENTS_MAX - 1 && log_rates[i].event[0] &&
	       strcmp(log_rates[i].event, event) != 0)
		i++;
	if (!log_rates[i].event[0])
		snprintf(log_rates[i].event, sizeof(log_rates[i].event), "%s", event);
	return &log_rates[i];
}

/* Whether a line of this event may be written now; if so, how many were suppressed before it. */
static int rate_allows(const char *event, int64_t now_ms, int64_t *suppressed)
{
	struct event_rate *rate = rate_find(event);

	if (now_ms - rate->since_ms >= 1000) {
		rate->since_ms = now_ms;
		rate->written = 0;
	}
	if (rate->written >= LOG_BURST) {
		rate->suppressed++;
		return 0;
	}
	rate->written++;
	*suppressed = rate->suppressed;
	rate->suppressed = 0;
	return 1;
}

static void line_put(struct line *line, const char *text, size_t len)
{
	size_t room = LOG_LINE_SIZE - 2 - line->len; /* there is always room for the newline */

	if (len > room)
		len = room;
	memcpy(line->text + line->len, text, len);
	line->len += len;
}

static int is_utf8_tail(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

size_t log_control_len(const char *text, size_t len)
{
	unsigned char c = len > 0 ? (unsigned char)*text : ' ';

	if (c == 0xc2 && len > 1)
		return (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
	return c < ' ' || c == 0x7f;
}

static int has_control(const char *text)
{
	while (*text && !log_control_len(text, 2))
		text++;
	return *text != '\0';
}

static void line_quote(struct line *line, const char *text)
{
	size_t begin;

	line_put(line, "\"", 1);
	for (begin = line->len; *text && line->len < LOG_LINE_SIZE - LINE_RESERVE; text++) {
		char escaped[8];
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			snprintf(escaped, sizeof(escaped), "\\%c", c);
		else if (log_control_len(text, 2))
			snprintf(escaped, sizeof(escaped), "\\u%04x",
				 c == 0xc2 ? (unsigned char)*++text : c);
		else
			snprintf(escaped, sizeof(escaped), "%c", c);
		line_put(line, escaped, strlen(escaped));
	}
	if (is_utf8_tail(*text)) { /* cut in the middle of a character */
		while (line->len > begin && is_utf8_tail(line->text[line->len - 1]))
			line->len--;
		line->len -= line->len > begin;
	}
	line_put(line, "\"", 1);
}

static void line_field(struct line *line, const struct log_field *field)
{
	char number[32];

	if (line->len >= LOG_LINE_SIZE - LINE_RESERVE)
		return;
	if (line->len)
		line_put(line, log_as_json ? "," : " ", 1);
	if (log_as_json)
		line_quote(line, field->key);
	else
		line_put(line, field->key, strlen(field->key));
	line_put(line, log_as_json ? ":" : "=", 1);
	if (!field->text) {
		if (field->is_thousandths)
			snprintf(number, sizeof(number), "%lld.%03lld",
				 (long long)field->number / 1000, (long long)field->number % 1000);
		else
			snprintf(number, sizeof(number), "%lld", (long long)field->number);
		line_put(line, number, strlen(number));
	} else if (log_as_json || !*field->text || has_control(field->text) ||
		   field->text[strcspn(field->text, " \"\\=")]) {
		line_quote(line, field->text);
	} else {
		line_put(line, field->text, strlen(field->text));
	}
}

/* Makes the line of an event, with its newline. */
static void event_format(struct line *line, enum log_level level, const char *event,
			 const struct log_field *fields, int64_t suppressed)
{
	char time_text[CLOCK_RFC3339_SIZE];
	const struct log_field head[] = { LOG_S("time", clock_rfc3339(clock_wall_ms(), time_text)),
					  LOG_S("level", level_names[level]),
					  LOG_S("program", log_program), LOG_S("event", event) };

	line->len = 0;
	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		line_field(line, &head[i]);
	for (; fields->key; fields++)
		line_field(line, fields);
	if (suppressed)
		line_field(line, &(struct log_field)LOG_I("suppressed", suppressed));
	if (log_as_json) {
		memmove(line->text + 1, line->text, line->len);
		line->text[0] = '{';
		line->len++;
		line_put(line, "}", 1);
	}
	line->text[line->len++] = '\n';
}

static void event_write(enum log_level level, const char *event, const struct log_field *fields,
			int64_t suppressed)
{
	struct line line;

	event_format(&line, level, event, fields, suppressed);
	log_output_write(line.text, line.len);
}

size_t log_dropped_line(int64_t lines, char text[LOG_LINE_SIZE])
{
	struct line line;

	event_format(&line, LOG_LEVEL_WARN, "log_dropped",
		     (const struct log_field[]){ LOG_I("lines", lines), { 0 } }, 0);
	memcpy(text, line.text, line.len);
	return line.len;
}

void log_init(const char *program, enum log_level least, int as_json)
{
	log_program = program;
	log_least = least;
	log_as_json = as_json;
	log_output_init();
}

const char *log_program_name(void)
{
	return log_program;
}

void log_event(enum log_level level, const char *event, const struct log_field *fields)
{
	int64_t suppressed = 0;
	int allowed;

	if (level < log_least)
		return;
	pthread_mutex_lock(&log_mutex);
	allowed = rate_allows(event, clock_monotonic_ms(), &suppressed);
	pthread_mutex_unlock(&log_mutex);
	if (allowed)
		event_write(level, event, fields, suppressed);
}

void log_each(enum log_level level, const char *event, const struct log_field *fields)
{
	if (level >= log_least)
		event_write(level, event, fields, 0);
}

/*
 * `len` as of snprintf(): a text that is too long is cut. What a store has said, or is stored in
 * it, may have control characters.
 */
static void last_write(const char text[LOG_LINE_SIZE], int len)
{
	size_t end = len < LOG_LINE_SIZE ? (size_t)len : LOG_LINE_SIZE - 1;
	size_t control = 0; /* bytes that are left of a control character */
	struct line line = { .len = 0 };
	char escaped[5];

	for (size_t i = 0; i < end; i++) {
		control = control > 0 ? control : log_control_len(text + i, end - i);
		snprintf(escaped, sizeof(escaped), control > 0 ? "\\x%02x" : "%c",
			 (unsigned char)text[i]);
		line_put(&line, escaped, strlen(escaped));
		control -= control > 0;
	}
	line.text[line.len++] = '\n';
	log_output_last(line.text, line.len);
}

void log_fatal(const char *format, ...)
{
	char text[LOG_LINE_SIZE];
	int len = snprintf(text, sizeof(text), "%s: ", log_program);
	va_list args;

	va_start(args, format);
	len += vsnprintf(text + len, sizeof(text) - (size_t)len, format, args);
	va_end(args);
	last_write(text, len);
	exit(fatal_status);
}

void log_fatal_status(int status)
{
	if (fatal_status == 1)
		fatal_status = status;
}

unsigned trace_set;

static const char *const trace_names[] = {
#define TRACE(name, text) [name] = text,
	TRACES
#undef TRACE
};

/* The bits of one name, or 0. */
static unsigned name_bits(const char *name, size_t len)
{
	if (len == 3 && memcmp(name, "all", 3) == 0)
		return (1u << TRACE_COUNT) - 1;
	for (unsigned i = 0; i < TRACE_COUNT; i++)
		if (strlen(trace_names[i]) == len && memcmp(trace_names[i], name, len) == 0)
			return 1u << i;
	return 0;
}

int trace_init(const char *list)
{
	trace_set = 0;
	while (*list) {
		size_t len = strcspn(list, ",");
		unsigned bits = name_bits(list, len);

		if (!bits)
			return -1;
		trace_set |= bits;
		list += len + (list[len] == ',');
	}
	return 0;
}

void trace_write(enum trace trace, int64_t number, const char *from, const char *to)
{
	const struct log_field fields[] = { LOG_S("of", trace_names[trace]),
					    LOG_I("number", number),
					    LOG_S("from", from),
					    LOG_S("to", to),
					    { 0 } };

	event_write(LOG_LEVEL_INFO, "trace", fields, 0);
}

#define VERSION_SIZE 64

static const char *const service_names[] = { [SERVICE_REDIS] = "redis",
					     [SERVICE_RABBITMQ] = "rabbitmq",
					     [SERVICE_POSTGRESQL] = "postgresql" };

static enum log_level version_level = LOG_LEVEL_DEBUG;
static char versions[sizeof(service_names) / sizeof(service_names[0])][VERSION_SIZE]; /* "": none */

void service_version_init(void)
{
	version_level = LOG_LEVEL_INFO;
}

void service_version_log(enum service service, const char *product, const char *version)
{
	char now[VERSION_SIZE], before[VERSION_SIZE];

	if (!*version)
		return;
	snprintf(now, sizeof(now), "%s %s", product, version);
	pthread_mutex_lock(&log_mutex);
	memcpy(before, versions[service], sizeof(before));
	memcpy(versions[service], now, sizeof(now));
	pthread_mutex_unlock(&log_mutex);
	if (strcmp(before, now) == 0)
		return;
	log_event(version_level, "service_version",
		  (struct log_field[]){ LOG_S("service", service_names[service]),
					LOG_S("version", now),
					*before ? (struct log_field)LOG_S("before", before)
						: (struct log_field){ 0 },
					{ 0 } });
}

void check_failed(const char *file, int line, const char *condition)
{
	char text[LOG_LINE_SIZE];

	last_write(text, snprintf(text, sizeof(text),
				  "level=fatal event=bug file=%s line=%d condition=\"%s\"", file,
				  line, condition));
	abort();
}
