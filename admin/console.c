#include "admin/console.h"

#include "common/check.h"
#include "common/serve/web.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "/console/"
#define FIRST "index.html" /* which / is, too */

/* Nothing comes from elsewhere, nothing is inline, and no other page shows it in a frame. */
#define POLICY                                                                                  \
	"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " \
	"'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

static const struct console_file *file_find(const char *path)
{
	const char *name = strncmp(path, PREFIX, strlen(PREFIX)) == 0 ? path + strlen(PREFIX) : "";

	if (strcmp(path, "/") == 0)
		name = FIRST;
	for (const struct console_file *file = console_files; file->name; file++)
		if (strcmp(file->name, name) == 0)
			return file;
	return NULL;
}

static const char *type_of(const char *name)
{
	static const struct {
		const char *end, *type;
	} types[] = { { ".html", "text/html; charset=utf-8" },
		      { ".css", "text/css; charset=utf-8" },
		      { ".js", "text/javascript; charset=utf-8" },
		      { ".svg", "image/svg+xml" } };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(strrchr(name, '.'), types[i].end) == 0)
			return types[i].type;
	check(!"a type of file that has no name");
	return NULL;
}

int console_answer(struct evhttp_request *request, const char *path)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	const struct console_file *file = file_find(path);
	const char *known;
	struct evbuffer *body;
	char tag[32];

	if (!file)
		return 0;
	known = evhttp_find_header(evhttp_request_get_input_headers(request), "If-None-Match");
	snprintf(tag, sizeof(tag), "\"%s\"", file->tag);
	evhttp_add_header(headers, "ETag", tag);
	evhttp_add_header(headers, "Cache-Control", "no-cache");
	evhttp_add_header(headers, "Content-Security-Policy", POLICY);
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
	evhttp_add_header(headers, "Cross-Origin-Opener-Policy", "same-origin");
	if (known && strcmp(known, tag) == 0) {
		evhttp_send_reply(request, HTTP_NOTMODIFIED, NULL, NULL);
		return 1;
	}
	body = checked(evbuffer_new());
	check(evbuffer_add_reference(body, file->text, strlen(file->text), NULL, NULL) == 0);
	web_reply(request, 200, NULL, type_of(file->name), body);
	return 1;
}
