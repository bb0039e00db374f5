/*
 * HTTP with arbitrary bytes: the server answers with HTTP or closes the connection, every request
 * that it accepted is answered once and freed, no page but the listed one may read an answer, and
 * requests and answers do not depend on where the bytes are cut.
 */
#include "tests/fuzz/wire.h"

#include "gateway/listen/http.h"

static int ready(void *context, cJSON **body)
{
	(void)context;
	*body = cJSON_CreateObject();
	return 1;
}

/* The values of a header, which differ between runs. */
static void values_blank(struct wire_text *text, const char *name)
{
	char *at = text->bytes;

	while ((at = memmem(at, text->len - (size_t)(at - text->bytes), name, strlen(name))))
		for (; at < text->bytes + text->len && *at != '\r'; at++)
			*at = ' ';
}

/* No page but the listed one may read a reply. */
static void origins_check(const struct wire_text *text)
{
	static const char name[] = "\r\nAccess-Control-Allow-Origin: ";
	static const char value[] = WIRE_ORIGIN "\r\n";
	const char *at = text->bytes, *end = text->bytes + text->len;

	while ((at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1))) {
		at += sizeof(name) - 1;
		check((size_t)(end - at) >= sizeof(value) - 1 &&
		      memcmp(at, value, sizeof(value) - 1) == 0);
	}
}

/* The first byte: where to cut, and whether the answers are delayed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_text whole, cut;
	static struct wire wire;
	static struct http *http;
	size_t dispatched;

	if (size == 0)
		return 0;
	if (!http) {
		wire_init(&wire);
		http = http_new(wire.base, &wire.config, wire.intake, WIRE_LIMIT_BYTES, ready,
				NULL);
		wire_listen(&wire, http_accept, http);
	}
	wire.later = data[0] & 1;
	wire_run(&wire, data + 1, size - 1, 1u + data[0], &cut);
	dispatched = wire.dispatched;
	check(intake_held_bytes(wire.intake) == 0);
	origins_check(&cut);
	check(cut.len == 0 || (cut.len > 9 && memcmp(cut.bytes, "HTTP/", 5) == 0));
	if (wire.later || memmem(data + 1, size - 1, "/metrics", 8) ||
	    memmem(data + 1, size - 1, "xpect", 5))
		return 0;
	wire_run(&wire, data + 1, size - 1, 0, &whole);
	values_blank(&whole, "Date: ");
	values_blank(&cut, "Date: ");
	values_blank(&whole, "X-Request-Id: ");
	values_blank(&cut, "X-Request-Id: ");
	/*
	 * The last page may be lost: evhttp closes the connection with bytes unread, and the kernel
	 * resets it.
	 */
	check(wire.dispatched == dispatched);
	check(memcmp(whole.bytes, cut.bytes, whole.len < cut.len ? whole.len : cut.len) == 0);
	check(intake_held_bytes(wire.intake) == 0);
	return 0;
}
