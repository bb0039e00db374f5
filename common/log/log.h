/*
 * Logging: one line an event on standard error, `key=value` pairs or JSON. An event that repeats is
 * written at most LOG_BURST times a second; the next line of that event has how many were
 * suppressed. Does not wait for the reader of standard error (log_output.h). Any thread.
 *
 *	log_warn("redis_lost", LOG_S("address", address), LOG_I("pending", pending));
 */
#ifndef COMMON_LOG_LOG_H
#define COMMON_LOG_LOG_H

#include <stddef.h>
#include <stdint.h>

#define LOG_BURST 10

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

struct log_field {
	const char *key;  /* NULL ends the list */
	const char *text; /* NULL: the number counts */
	int64_t number;
};

static inline const char *log_text(const char *text)
{
	return text ? text : "";
}

#define LOG_S(key, text)                 \
	{                                \
		(key), log_text(text), 0 \
	}
#define LOG_I(key, number)                     \
	{                                      \
		(key), NULL, (int64_t)(number) \
	}

/*
 * `program` names the process in every line; lines below `least` are dropped. Call once, before
 * threads start.
 */
void log_init(const char *program, enum log_level least, int as_json);
const char *log_program_name(void);

void log_event(enum log_level level, const char *event, const struct log_field *fields);
/* The same without a limit of level or rate: for traces that were enabled by name. */
void log_unlimited(enum log_level level, const char *event, const struct log_field *fields);

#define log_debug(event, ...) \
	log_event(LOG_LEVEL_DEBUG, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_info(event, ...) \
	log_event(LOG_LEVEL_INFO, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_warn(event, ...) \
	log_event(LOG_LEVEL_WARN, event, (struct log_field[]){ __VA_ARGS__, { 0 } })
#define log_error(event, ...) \
	log_event(LOG_LEVEL_ERROR, event, (struct log_field[]){ __VA_ARGS__, { 0 } })

/*
 * Ends a failed start: a sentence on standard error and exit status 1, or the one set by
 * log_fatal_status().
 */
_Noreturn void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_fatal_status(int status); /* before threads start */

#endif
