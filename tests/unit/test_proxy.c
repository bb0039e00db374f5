/* The header of the PROXY protocol: whose connection it is, and what is refused. */
#include "gateway/listen/proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#define TEXT_SIZE 128

/* The result, which must not depend on how the bytes come; and no byte after it counts. */
static enum proxy_result parse(const void *bytes, size_t len, struct proxy_header *header)
{
	enum proxy_result whole = proxy_parse(bytes, len, header), part = PROXY_MORE;
	struct proxy_header other;
	size_t n = 0;

	while (part == PROXY_MORE && n < len)
		part = proxy_parse(bytes, ++n, &other);
	assert_int_equal(part, whole);
	if (whole == PROXY_HEADER) {
		assert_int_equal(n, header->len);
		assert_memory_equal(&other, header, sizeof(other));
	}
	return whole;
}

/* As "192.0.2.1 80", or "" without an address. */
static const char *from(const struct proxy_header *header, char text[TEXT_SIZE])
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&header->from;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&header->from;
	int is_four = header->from.ss_family == AF_INET;

	text[0] = '\0';
	if (header->from.ss_family == AF_UNSPEC)
		return text;
	inet_ntop(header->from.ss_family,
		  is_four ? (const void *)&four->sin_addr : (const void *)&six->sin6_addr, text,
		  TEXT_SIZE);
	snprintf(text + strlen(text), 8, " %d", ntohs(is_four ? four->sin_port : six->sin6_port));
	return text;
}

static void test_lines(void **state)
{
	static const struct {
		const char *line, *from;
	} cases[] = {
		{ "PROXY TCP4 192.0.2.1 10.0.0.1 56324 443", "192.0.2.1 56324" },
		{ "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535",
		  "255.255.255.255 65535" },
		{ "PROXY TCP4 0.0.0.0 0.0.0.0 0 0", "0.0.0.0 0" },
		{ "PROXY TCP6 2001:db8::1 ::1 1 2", "2001:db8::1 1" },
		{ "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
		  "FFFF:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
		  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535" },
		{ "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2", "::ffff:192.0.2.1 1" },
		{ "PROXY UNKNOWN", "" },
		{ "PROXY UNKNOWN 192.0.2.1 what is this", "" },
		{ "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
		  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
		  "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char bytes[256], text[TEXT_SIZE];
		int len = snprintf(bytes, sizeof(bytes), "%s\r\n{\"op\":\"ping\"}\n",
				   cases[i].line);
		struct proxy_header header;

		assert_int_equal(parse(bytes, (size_t)len, &header), PROXY_HEADER);
		assert_int_equal(header.len, strlen(cases[i].line) + 2);
		assert_string_equal(from(&header, text), cases[i].from);
	}
}

static void test_lines_that_are_none(void **state)
{
	static const char *const lines[] = {
		"GET / HTTP/1.1\r\n",
		"{\"op\":\"ping\"}\n",
		"\r\n",
		"\n",
		"proxy TCP4 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY\r\n",
		"PROXY \r\n",
		"PROXYTCP4 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY  TCP4 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY TCP4\r\n",
		"PROXY TCP4 \r\n",
		"PROXY TCP4 192.0.2.1\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 \r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443 \r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443 1\r\n",
		"PROXY TCP4 192.0.2.1  10.0.0.1 56324 443\r\n",
		"PROXY TCP4 192.0.2.1\t10.0.0.1 56324 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 56324\n443\r\n",
		"PROXY TCP4 192.0.2.01 10.0.0.1 56324 443\r\n",
		"PROXY TCP4 192.0.2 10.0.0.1 56324 443\r\n",
		"PROXY TCP4 192.0.2.256 10.0.0.1 56324 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 056324 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 00 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 65536 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 1 65536\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 -1 443\r\n",
		"PROXY TCP4 192.0.2.1 10.0.0.1 +1 443\r\n",
		"PROXY TCP4 2001:db8::1 ::1 56324 443\r\n",
		"PROXY TCP6 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY TCP6 2001:db8::1%eth0 ::1 56324 443\r\n",
		"PROXY TCP6 2001:db8::1::2 ::1 56324 443\r\n",
		"PROXY TCP6 2001:db8::1 192.0.2.1 56324 443\r\n",
		"PROXY TCP5 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY UDP4 192.0.2.1 10.0.0.1 56324 443\r\n",
		"PROXY UNKNOWNS\r\n",
		"PROXY UNKNOWN\n\r\n",
		"PROXY UNKNOWN a\rb\r\n",
		/* 108 bytes */
		"PROXY UNKNOWN xffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
	};
	struct proxy_header header;

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_int_not_equal(parse(lines[i], strlen(lines[i]), &header), PROXY_HEADER);
	assert_int_equal(parse("PROXY TCP4 192.0.2.1\0 10.0.0.1 1 2\r\n", 37, &header),
			 PROXY_MALFORMED);
}

/* A line ends, or is malformed: it is never waited for beyond 107 bytes. */
static void test_a_line_without_an_end(void **state)
{
	char bytes[PROXY_HEADER_MAX];
	struct proxy_header header;

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	memcpy(bytes, "PROXY UNKNOWN ", 14);
	assert_int_equal(proxy_parse(bytes, 106, &header), PROXY_MORE);
	assert_int_equal(proxy_parse(bytes, 107, &header), PROXY_MALFORMED);
	bytes[105] = '\r';
	assert_int_equal(proxy_parse(bytes, 106, &header), PROXY_MORE);
	assert_int_equal(proxy_parse(bytes, 107, &header), PROXY_MALFORMED);
	bytes[105] = 'x';
	bytes[106] = '\r';
	bytes[107] = '\n';
	assert_int_equal(proxy_parse(bytes, 108, &header), PROXY_MALFORMED);
}

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define FOUR "\xc0\x00\x02\x01\x0a\x00\x00\x01\x00\x50\x01\xbb" /* 192.0.2.1:80 */
#define SIX                                                                                        \
	"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\x00" \
	"\x51\x01\xbb" /* [2001:db8::1]:81 */

struct binary {
	const char *bytes;
	size_t len;
	const char *from; /* NULL: malformed */
};

#define BINARY(rest) SIGNATURE rest, sizeof(SIGNATURE rest) - 1

static void binaries_check(const struct binary *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char bytes[512], text[TEXT_SIZE];
		struct proxy_header header;
		enum proxy_result result;

		memcpy(bytes, cases[i].bytes, cases[i].len);
		memcpy(bytes + cases[i].len, "more", 4);
		result = parse(bytes, cases[i].len + 4, &header);
		assert_int_equal(result, cases[i].from ? PROXY_HEADER : PROXY_MALFORMED);
		if (!cases[i].from)
			continue;
		assert_int_equal(header.len, cases[i].len);
		assert_string_equal(from(&header, text), cases[i].from);
	}
}

static void test_binary(void **state)
{
	static const struct binary cases[] = {
		{ BINARY("\x21\x11\x00\x0c" FOUR), "192.0.2.1 80" },
		{ BINARY("\x21\x12\x00\x0c" FOUR), "192.0.2.1 80" },
		{ BINARY("\x21\x21\x00\x24" SIX), "2001:db8::1 81" },
		{ BINARY("\x21\x22\x00\x24" SIX), "2001:db8::1 81" },
		{ BINARY("\x20\x00\x00\x00"), "" },
		{ BINARY("\x20\x11\x00\x0c" FOUR), "" },
		{ BINARY("\x20\xff\x00\x02\xff\xff"), "" },
		{ BINARY("\x21\x00\x00\x00"), "" },
		{ BINARY("\x21\x00\x00\x03xyz"), "" },
		{ BINARY("\x21\x10\x00\x01x"), "" },
		/* TLVs: NOOP, of no bytes; an own one of three */
		{ BINARY("\x21\x11\x00\x15" FOUR "\x04\x00\x00\xea\x00\x03xyz"), "192.0.2.1 80" },
		{ BINARY("\x21\x11\x00\x13" FOUR "\x03\x00\x04\xa7\xc6\xf0\xba"), NULL },
		{ BINARY("\x21\x11\x00\x0f" FOUR "\x03\x00\x00"), NULL },
		{ BINARY("\x22\x11\x00\x0c" FOUR), NULL },
		{ BINARY("\x11\x11\x00\x0c" FOUR), NULL },
		{ BINARY("\x31\x11\x00\x0c" FOUR), NULL },
		{ BINARY("\x21\x13\x00\x0c" FOUR), NULL },
		{ BINARY("\x21\x41\x00\x0c" FOUR), NULL },
		{ BINARY("\x21\x11\x00\x0b" FOUR), NULL },
		{ BINARY("\x21\x21\x00\x0c" FOUR), NULL },
		{ BINARY("\x21\x31\x00\x0c" FOUR), NULL },
		{ BINARY("\x21\x11\x00\x0d" FOUR "\x04"), NULL },
		{ BINARY("\x21\x11\x00\x0e" FOUR "\x04\x00"), NULL },
		{ BINARY("\x21\x11\x00\x0f" FOUR "\x04\x00\x01"), NULL },
		{ BINARY("\x21\x11\x00\x10" FOUR "\x04\xff\xff\x00"), NULL },
	};

	(void)state;
	binaries_check(cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_unix_sockets(void **state)
{
	char bytes[16 + 216 + 3] = SIGNATURE "\x21\x31\x00\xdb";
	struct proxy_header header;

	(void)state;
	bytes[16 + 216] = 4; /* NOOP */
	assert_int_equal(parse(bytes, sizeof(bytes), &header), PROXY_HEADER);
	assert_int_equal(header.len, sizeof(bytes));
	assert_int_equal(header.from.ss_family, AF_UNSPEC);
	bytes[sizeof(bytes) - 1] = 1;
	assert_int_equal(parse(bytes, sizeof(bytes), &header), PROXY_MALFORMED);
}

static void test_the_longest(void **state)
{
	char bytes[PROXY_HEADER_MAX + 1] = SIGNATURE "\x20\x00\x02\x08";
	struct proxy_header header;

	(void)state;
	assert_int_equal(proxy_parse(bytes, PROXY_HEADER_MAX - 1, &header), PROXY_MORE);
	assert_int_equal(parse(bytes, PROXY_HEADER_MAX, &header), PROXY_HEADER);
	assert_int_equal(header.len, PROXY_HEADER_MAX);
	bytes[15]++;
	assert_int_equal(parse(bytes, 16, &header), PROXY_MALFORMED);
}

static uint32_t crc_of(const unsigned char *bytes, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len * 8; i++) {
		uint32_t bit = (uint32_t)bytes[i / 8] >> i % 8 & 1;

		crc = crc >> 1 ^ ((crc ^ bit) & 1 ? 0x82f63b78U : 0);
	}
	return ~crc;
}

static void test_checksums(void **state)
{
	static const char begin[] = SIGNATURE "\x21\x11\x00\x17" FOUR
					      "\x03\x00\x04\0\0\0\0\x04\x00\x01x";
	unsigned char bytes[sizeof(begin) - 1];
	struct proxy_header header;
	uint32_t crc;

	(void)state;
	assert_int_equal(crc_of((const unsigned char *)"123456789", 9), 0xe3069283U);
	memcpy(bytes, begin, sizeof(bytes));
	assert_int_equal(parse(bytes, sizeof(bytes), &header), PROXY_MALFORMED);
	crc = htonl(crc_of(bytes, sizeof(bytes)));
	memcpy(bytes + 16 + 12 + 3, &crc, sizeof(crc));
	assert_int_equal(parse(bytes, sizeof(bytes), &header), PROXY_HEADER);
	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		/* LOCAL skips it all, UNSPEC knows no TLVs, and another type is no checksum. */
		if (bit != 8 * 12 && bit != 8 * 13 && bit != 8 * 13 + 4 && bit / 8 != 16 + 12)
			assert_int_not_equal(proxy_parse(bytes, sizeof(bytes), &header),
					     PROXY_HEADER);
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_lines_that_are_none),
		cmocka_unit_test(test_a_line_without_an_end),
		cmocka_unit_test(test_binary),
		cmocka_unit_test(test_unix_sockets),
		cmocka_unit_test(test_the_longest),
		cmocka_unit_test(test_checksums),
	};

	return cmocka_run_group_tests_name("proxy", tests, NULL, NULL);
}
