/*
 * A line is written to standard error at once if the pipe, socket or terminal takes it. Otherwise
 * it waits in a buffer, which a temporary thread empties; what does not fit is dropped and counted.
 *
 *	line ─▶ buffer is empty ─▶ standard error
 *	     └─▶ buffer ─▶ thread ─┘
 */
#include "common/log/log.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* reserved at the end of a line, so that a line that is cut is still well-formed */
#define LINE_RESERVE 128
#define EVENTS_MAX 128
#define POLL_MS 100
#define PAUSE_US 10000

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
	const char *control = log_text(field->text);
	char number[32];

	if (line->len >= LOG_LINE_SIZE - LINE_RESERVE)
		return;
	while (*control && !log_control_len(control, 2))
		control++;
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
	} else if (log_as_json || !*field->text || *control ||
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

/* ---- standard error */

/* How to write without blocking. Other processes may share the descriptor, so its flags stay. */
enum output_way {
	WAY_WRITE,  /* a file: it takes everything */
	WAY_OPENED, /* a pipe or a terminal, opened once more as non-blocking */
	WAY_SOCKET, /* MSG_DONTWAIT */
	WAY_POLLED  /* as WAY_OPENED, but it may not be opened: another process may come first */
};

static struct {
	pthread_mutex_t mutex; /* guards all of this */
	int is_known;          /* what standard error is: */
	dev_t device;
	ino_t inode;
	enum output_way way;
	int opened; /* WAY_OPENED */
	char bytes[LOG_BUFFER_BYTES];
	size_t len; /* whole lines, but the first may be partly written */
	int64_t dropped;
	int draining; /* the thread runs */
} output = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Finds out what standard error is now. */
static void target_find(void)
{
	struct stat status = { 0 };

	fstat(STDERR_FILENO, &status);
	if (output.is_known && status.st_dev == output.device && status.st_ino == output.inode)
		return;
	if (output.is_known && output.way == WAY_OPENED)
		close(output.opened);
	output.is_known = 1;
	output.device = status.st_dev;
	output.inode = status.st_ino;
	output.way = WAY_WRITE;
	if (S_ISSOCK(status.st_mode)) {
		output.way = WAY_SOCKET;
	} else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
		output.opened = open("/proc/self/fd/2",
				     O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		output.way = output.opened < 0 ? WAY_POLLED : WAY_OPENED;
	}
}

static int target_waits(int timeout_ms)
{
	struct pollfd pollfd = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&pollfd, 1, timeout_ms) == 0;
}

/* Returns how many bytes it took; all of them when the log has no reader any more. */
static size_t target_write(const char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = -1;

		switch (output.way) {
		case WAY_WRITE:
			n = write(STDERR_FILENO, bytes + done, len - done);
			break;
		case WAY_OPENED:
			n = write(output.opened, bytes + done, len - done);
			break;
		case WAY_SOCKET:
			n = send(STDERR_FILENO, bytes + done, len - done,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
			break;
		case WAY_POLLED:
			if (target_waits(0))
				errno = EAGAIN;
			else
				n = write(STDERR_FILENO, bytes + done, len - done);
			break;
		}

		if (n > 0)
			done += (size_t)n;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return done;
		else if (n == 0 || errno != EINTR)
			return len;
	}
	return done;
}

static void wait_add(const char *line, size_t len)
{
	if (len > LOG_BUFFER_BYTES - output.len) {
		output.dropped++;
		return;
	}
	memcpy(output.bytes + output.len, line, len);
	output.len += len;
}

/* Writes line by line, because a pipe takes a line as a whole or not at all. */
static void lines_write(void)
{
	size_t at = 0;

	while (at < output.len) {
		const char *line = output.bytes + at;
		const char *stop = memchr(line, '\n', output.len - at);
		size_t len = stop ? (size_t)(stop + 1 - line) : output.len - at;
		size_t done = target_write(line, len);

		at += done;
		if (done < len)
			break;
	}
	memmove(output.bytes, output.bytes + at, output.len - at);
	output.len -= at;
}

/* Writes what waits; returns whether something still does. */
static int drain(void)
{
	struct line line;

	target_find();
	lines_write();
	while (output.len == 0 && output.dropped > 0) {
		event_format(&line, LOG_LEVEL_WARN, "log_dropped",
			     (const struct log_field[]){ LOG_I("lines", output.dropped), { 0 } },
			     0);
		output.dropped = 0;
		wait_add(line.text, line.len);
		lines_write();
	}
	return output.len > 0;
}

static void *drain_main(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&output.mutex);
	while (drain()) {
		pthread_mutex_unlock(&output.mutex);
		if (!target_waits(POLL_MS))
			usleep(PAUSE_US); /* writable, but not for a whole line */
		pthread_mutex_lock(&output.mutex);
	}
	output.draining = 0;
	pthread_mutex_unlock(&output.mutex);
	return NULL;
}

/* Formats the line and writes it, or leaves it to the thread. */
static void event_write(enum log_level level, const char *event, const struct log_field *fields,
			int64_t suppressed)
{
	struct line line;
	size_t done = 0;

	event_format(&line, level, event, fields, suppressed);
	pthread_mutex_lock(&output.mutex);
	target_find();
	if (output.len == 0)
		done = target_write(line.text, line.len);
	if (done < line.len) {
		wait_add(line.text + done, line.len - done);
		if (!output.draining && thread_detach(drain_main, NULL) == 0)
			output.draining = 1;
	}
	pthread_mutex_unlock(&output.mutex);
}

/* Writes the last words before exit() or abort(): waits for up to LOG_END_MS. */
static void output_last(const char *text, size_t len)
{
	int64_t until_ms = clock_monotonic_ms() + LOG_END_MS;
	int waits;

	/* A thread that is in write() to a file that hangs may hold the mutex. */
	while (pthread_mutex_trylock(&output.mutex)) {
		if (clock_monotonic_ms() >= until_ms)
			return;
		usleep(1000);
	}
	do {
		waits = drain();
		if (len > 0 && len <= LOG_BUFFER_BYTES - output.len) {
			wait_add(text, len);
			len = 0;
			waits = drain();
		}
		if (waits) {
			pthread_mutex_unlock(&output.mutex);
			usleep(PAUSE_US);
			pthread_mutex_lock(&output.mutex);
		}
	} while (waits && clock_monotonic_ms() < until_ms);
	pthread_mutex_unlock(&output.mutex);
}

void log_flush(void)
{
	output_last("", 0);
}

/* A child has no thread, and its parent writes what waits. These three are for fork(). */
static void fork_prepare(void)
{
	pthread_mutex_lock(&output.mutex);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&output.mutex);
}

static void fork_child(void)
{
	output.len = 0;
	output.dropped = 0;
	output.draining = 0;
	pthread_mutex_unlock(&output.mutex);
}

/* ---- events */

void log_init(const char *program, enum log_level least, int as_json)
{
	static int is_first = 1;

	log_program = program;
	log_least = least;
	log_as_json = as_json;
	if (!is_first)
		return;
	is_first = 0;
	atexit(log_flush);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

const char *log_program_name(void)
{
	return log_program;
}

void log_event(enum log_level level, const char *event, const struct log_field *fields)
{
	int64_t now_ms = clock_monotonic_ms(), suppressed;
	struct event_rate *rate;
	int i = 0;

	if (level < log_least)
		return;
	/* Events beyond the table share its last entry. */
	pthread_mutex_lock(&log_mutex);
	while (i < EVENTS_MAX - 1 && log_rates[i].event[0] &&
	       strcmp(log_rates[i].event, event) != 0)
		i++;
	rate = &log_rates[i];
	if (!rate->event[0])
		snprintf(rate->event, sizeof(rate->event), "%s", event);
	if (now_ms - rate->since_ms >= 1000) {
		rate->since_ms = now_ms;
		rate->written = 0;
	}
	if (rate->written >= LOG_BURST) {
		rate->suppressed++;
		pthread_mutex_unlock(&log_mutex);
		return;
	}
	rate->written++;
	suppressed = rate->suppressed;
	rate->suppressed = 0;
	pthread_mutex_unlock(&log_mutex);
	event_write(level, event, fields, suppressed);
}

void log_each(enum log_level level, const char *event, const struct log_field *fields)
{
	if (level >= log_least)
		event_write(level, event, fields, 0);
}

/*
 * `len` is the return value of snprintf(): a text that is too long is cut. What a store has said,
 * or is stored in it, may have control characters.
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
	output_last(line.text, line.len);
}

static void (*fatal_take)(const char *format, va_list args);

void log_fatal(const char *format, ...)
{
	char text[LOG_LINE_SIZE];
	int len = snprintf(text, sizeof(text), "%s: ", log_program);
	va_list args;

	va_start(args, format);
	if (fatal_take)
		fatal_take(format, args);
	else
		len += vsnprintf(text + len, sizeof(text) - (size_t)len, format, args);
	va_end(args);
	if (!fatal_take)
		last_write(text, len);
	exit(fatal_status);
}

void log_fatal_to(void (*take)(const char *format, va_list args))
{
	fatal_take = take;
}

void log_fatal_status(int status)
{
	if (fatal_status == 1)
		fatal_status = status;
}

/* ---- traces */

unsigned trace_set;

static const char *const trace_names[] = {
#define TRACE(name, text) [name] = text,
	TRACES
#undef TRACE
};

int trace_init(const char *list)
{
	trace_set = 0;
	while (*list) {
		size_t len = strcspn(list, ",");
		unsigned bits = 0;

		if (len == 3 && memcmp(list, "all", 3) == 0)
			bits = (1u << TRACE_COUNT) - 1;
		for (unsigned i = 0; i < TRACE_COUNT; i++)
			if (strlen(trace_names[i]) == len && memcmp(trace_names[i], list, len) == 0)
				bits = 1u << i;
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

/* ---- versions of services */

static const char *const service_names[] = { [SERVICE_REDIS] = "redis",
					     [SERVICE_RABBITMQ] = "rabbitmq",
					     [SERVICE_POSTGRESQL] = "postgresql" };

static enum log_level version_level = LOG_LEVEL_DEBUG;
static char versions[sizeof(service_names) / sizeof(service_names[0])]
		    [SERVICE_VERSION_SIZE]; /* "": none */

void service_version_init(void)
{
	version_level = LOG_LEVEL_INFO;
}

char *service_version_text(enum service service, char out[SERVICE_VERSION_SIZE])
{
	pthread_mutex_lock(&log_mutex);
	memcpy(out, versions[service], SERVICE_VERSION_SIZE);
	pthread_mutex_unlock(&log_mutex);
	return out;
}

void service_version_log(enum service service, const char *product, const char *version)
{
	char now[SERVICE_VERSION_SIZE], before[SERVICE_VERSION_SIZE];

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
