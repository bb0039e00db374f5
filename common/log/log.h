/*
 * Logging: one line an event on standard error, `key=value` pairs or JSON. An event that repeats is
 * written at most LOG_BURST times a second; the next line of that event has how many were
 * suppressed. Does not wait for the reader of standard error: what it does not take waits in a
 * buffer of LOG_BUFFER_BYTES, and lines beyond it are dropped and counted (event=log_dropped). Any
 * thread.
 *
 *	log_warn("redis_lost", LOG_S("address", address), LOG_I("pending", pending));
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_BURST 10
#define LOG_LINE_SIZE 4096 /* with its newline: what a pipe takes in one piece */
#define LOG_BUFFER_BYTES 262144
#define LOG_END_MS 500 /* the longest wait for the reader at the end of the process */

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

struct log_field {
	const char *key;  /* NULL ends the list */
	const char *text; /* NULL: the number counts */
	int64_t number;
	int is_thousandths; /* the number is written with three decimals */
};

static inline const char *log_text(const char *text)
{
	return text ? text : "";
}

#define LOG_S(key, text)                    \
	{                                   \
		(key), log_text(text), 0, 0 \
	}
#define LOG_I(key, number)                        \
	{                                         \
		(key), NULL, (int64_t)(number), 0 \
	}
/* At least 0; as a number of milliseconds with three decimals. */
#define LOG_US_AS_MS(key, us)                 \
	{                                     \
		(key), NULL, (int64_t)(us), 1 \
	}

/*
 * `program` names the process in every line; lines below `least` are dropped. Call once, before
 * threads start.
 */
void log_init(const char *program, enum log_level least, int as_json);
const char *log_program_name(void);

/* Writes what waits, for at most LOG_END_MS. The end of the process does so by itself. */
void log_flush(void);

/*
 * The bytes of the control character with which the text begins, or 0: one of U+0000 to U+001F and
 * U+007F to U+009F, in UTF-8. A terminal obeys them, so they are only written escaped.
 */
size_t log_control_len(const char *text, size_t len);

void log_event(enum log_level level, const char *event, const struct log_field *fields);

#define log_debug(event, ...) \
	log_event(LOG_LEVEL_DEBUG, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_info(event, ...) \
	log_event(LOG_LEVEL_INFO, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_warn(event, ...) \
	log_event(LOG_LEVEL_WARN, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_error(event, ...) \
	log_event(LOG_LEVEL_ERROR, event, (struct log_field[]){ __VA_ARGS__, { 0 } })

/* An event of which each line was asked for: not limited in rate. */
void log_each(enum log_level level, const char *event, const struct log_field *fields);

/*
 * Ends a failed start: a sentence on standard error, with control characters as \xNN, and exit
 * status 1, or the one set by log_fatal_status().
 */
_Noreturn void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The first that is set stays. Before threads start. */
void log_fatal_status(int status);
#define log_fatal_as(status, ...) (log_fatal_status(status), log_fatal(__VA_ARGS__))
/* The sentence goes there instead of to standard error. Before threads start. */
void log_fatal_to(void (*take)(const char *format, va_list args));

/*
 * Tracing by name: COUPON_TRACE=redis,call writes a line (event=trace) for each change of state of
 * the named objects, not limited in rate. A trace that is off costs one comparison.
 */

#define TRACES                            \
	TRACE(TRACE_CALL, "call")         \
	TRACE(TRACE_DELIVERY, "delivery") \
	TRACE(TRACE_LOOKUP, "lookup")     \
	TRACE(TRACE_REDIS, "redis")

enum trace {
#define TRACE(name, text) name,
	TRACES
#undef TRACE
		TRACE_COUNT
};

extern unsigned trace_set; /* a bit for each name that is on; read only */

/*
 * Enables the names in the list, separated by commas, or "all"; 0, or -1 at an unknown name. Before
 * threads start.
 */
int trace_init(const char *names);

/* `number` identifies the object: a tag, a coupon. */
void trace_write(enum trace trace, int64_t number, const char *from, const char *to);

static inline void trace_state(enum trace trace, int64_t number, const char *from, const char *to)
{
	if (trace_set & 1u << trace)
		trace_write(trace, number, from, to);
}

/*
 * Logs the version of each service (service_version): at the first connection, and after a
 * reconnect when it differs. One line for the process, however many connections it has. Any thread.
 * The level is debug until service_version_init(): a command of couponctl logs nothing by default.
 */

enum service { SERVICE_REDIS, SERVICE_RABBITMQ, SERVICE_POSTGRESQL };

/* At the start of a program that runs on, before threads start: the level is info. */
void service_version_init(void);

/* What a server states when a connection to it is opened. An empty version is ignored. */
void service_version_log(enum service service, const char *product, const char *version);

#define SERVICE_VERSION_SIZE 64
/* What a server has stated last, "Redis 7.0.15"; "": nothing. Returns `out`. */
char *service_version_text(enum service service, char out[SERVICE_VERSION_SIZE]);
