/*
 * The header of the PROXY protocol. The result is the same whether the bytes come one by one or at
 * once, and no byte after the header counts; a header that is accepted is within its bounds, and
 * what it tells of an address is written in it.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/listen/proxy.h"

#include <arpa/inet.h>
#include <stdlib.h>

static void header_check(const uint8_t *data, const struct proxy_header *header)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&header->from;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&header->from;
	int is_line = data[0] == 'P', family = header->from.ss_family;

	check(family == AF_UNSPEC || family == AF_INET || family == AF_INET6);
	check(header->len >= 15 && header->len <= (is_line ? 107 : PROXY_HEADER_MAX));
	if (is_line) {
		check(memcmp(data + header->len - 2, "\r\n", 2) == 0);
		check(!memchr(data, '\r', header->len - 2) && !memchr(data, '\n', header->len - 2));
		return;
	}
	check(header->len == 16u + ((size_t)data[14] << 8 | data[15]));
	if (family == AF_INET)
		check(memcmp(data + 16, &four->sin_addr, 4) == 0 &&
		      memcmp(data + 24, &four->sin_port, 2) == 0);
	if (family == AF_INET6)
		check(memcmp(data + 16, &six->sin6_addr, 16) == 0 &&
		      memcmp(data + 48, &six->sin6_port, 2) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct proxy_header header, other;
	enum proxy_result whole, part = PROXY_MORE;
	size_t n = 0;

	whole = proxy_parse(data, size, &header);
	check(whole != PROXY_MORE || size < PROXY_HEADER_MAX);
	while (part == PROXY_MORE && n < size) {
		uint8_t *copy = malloc(++n); /* so that a byte beyond it is noticed */

		check(copy != NULL);
		memcpy(copy, data, n);
		part = proxy_parse(copy, n, &other);
		free(copy);
	}
	check(part == whole);
	if (whole != PROXY_HEADER)
		return 0;
	check(n == header.len && memcmp(&header, &other, sizeof(header)) == 0);
	header_check(data, &header);
	return 0;
}
