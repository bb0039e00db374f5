#include "gateway/listen/http_head.h"

#include "common/check.h"
#include "common/message/id.h"

#include <http_parser.h>
#include <string.h>
#include <time.h>

#define DATE_SIZE 64

/* Formatted once a second. */
static const char *date(void)
{
	static _Thread_local char text[DATE_SIZE];
	static _Thread_local time_t formatted;
	time_t now = time(NULL);
	struct tm tm;

	if (now == formatted)
		return text;
	gmtime_r(&now, &tm);
	strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	formatted = now;
	return text;
}

static char *put(char *at, const char *text)
{
	size_t len = strlen(text);

	memcpy(at, text, len);
	return at + len;
}

static char *number_put(char *at, size_t number)
{
	if (number == 0)
		return put(at, "0");
	return at + id_format((int64_t)number, at);
}

size_t http_head_write(const struct http_head *head, char out[HTTP_HEAD_SIZE])
{
	char *at = put(out, head->minor == 0 ? "HTTP/1.0 " : "HTTP/1.1 ");

	check(strlen(head->type) < 128 && (!head->extra || strlen(head->extra) < 64));
	at = put(number_put(at, (size_t)head->status), " ");
	at = put(at, http_status_str((enum http_status)head->status));
	at = put(put(at, "\r\nContent-Type: "), head->type);
	at = put(put(at, "\r\nDate: "), date());
	at = number_put(put(at, "\r\nContent-Length: "), head->length);
	if (head->connection)
		at = put(put(at, "\r\nConnection: "), head->connection);
	if (head->extra)
		at = put(put(at, "\r\n"), head->extra);
	at = put(at, "\r\n\r\n");
	return (size_t)(at - out);
}
