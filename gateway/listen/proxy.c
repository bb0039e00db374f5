/*
 * The rules, by section of proxy-protocol.txt:
 *
 *	2.1  version 1   one line of ASCII, ended by CR LF and by nothing else, at most 107 bytes:
 *	                 PROXY, TCP4 or TCP6, two addresses, two ports, with one space between
 *	                 them; numbers have no zeros in front; after UNKNOWN anything may follow,
 *	                 which is ignored
 *	2.2  version 2   12 bytes of signature; version 2 and the command: 0 LOCAL, 1 PROXY; family
 *	                 and protocol; the length of the rest; then addresses and ports, then TLVs
 *	     LOCAL       all that follows is skipped, the family too
 *	     PROXY       of TCP and UDP over IPv4 and IPv6 the address is the client's; of Unix
 *	                 sockets and of what the balancer does not know (UNSPEC) there is none, and
 *	                 those of UNSPEC may have any bytes
 *	2.2  TLVs        they must fill the rest exactly
 *	2.2.3 CRC32C     if it is there, it must be right
 *
 * Here nothing is lenient: a byte that is not as written makes the header malformed. In version 1
 * a line is first complete and then read, in version 2 bytes are judged as they come.
 */
#include "gateway/listen/proxy.h"

#include "common/message/number.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#define LINE_MAX_BYTES 107
#define PORT_MAX 65535

static const char line_begin[] = "PROXY ";
static const unsigned char signature[] = { 0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d,
					   0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a };

/* Version 1. */

/* Takes the next word and the space after it, or the end of the text. */
static const char *word_take(char **at)
{
	char *word = *at, *space = strchr(word, ' ');

	*at = space ? space + 1 : word + strlen(word);
	if (space)
		*space = '\0';
	return word;
}

static int port_parse(const char *text, in_port_t *port)
{
	int64_t number;

	if (number_parse(text, PORT_MAX, &number) || (text[0] == '0' && text[1]))
		return -1;
	*port = htons((in_port_t)number);
	return 0;
}

/* `at`: the two addresses and the two ports. 0 or -1. */
static int addresses_parse(int family, char *at, struct sockaddr_storage *from)
{
	struct sockaddr_in *four = (struct sockaddr_in *)from;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)from;
	void *address = family == AF_INET ? (void *)&four->sin_addr : (void *)&six->sin6_addr;
	in_port_t *port = family == AF_INET ? &four->sin_port : &six->sin6_port, to_port;
	struct in6_addr to;
	const char *words[4];
	size_t len = strlen(at), words_len = 3;

	for (size_t i = 0; i < 4; i++) {
		words[i] = word_take(&at);
		words_len += strlen(words[i]);
	}
	from->ss_family = (sa_family_t)family;
	return words_len == len && inet_pton(family, words[0], address) == 1 &&
			       inet_pton(family, words[1], &to) == 1 &&
			       port_parse(words[2], port) == 0 &&
			       port_parse(words[3], &to_port) == 0
		       ? 0
		       : -1;
}

static enum proxy_result line_parse(const unsigned char *bytes, size_t len,
				    struct proxy_header *header)
{
	char line[LINE_MAX_BYTES + 1], *at = line + strlen(line_begin);
	const char *protocol;
	size_t end;

	for (end = 0; end < len; end++) {
		if (end == LINE_MAX_BYTES - 1 || bytes[end] == '\n')
			return PROXY_MALFORMED;
		if (bytes[end] == '\r')
			break;
	}
	if (end + 1 >= len)
		return PROXY_MORE;
	if (bytes[end + 1] != '\n')
		return PROXY_MALFORMED;
	header->len = end + 2;

	memcpy(line, bytes, end);
	line[end] = '\0';
	if (strlen(line) != end)
		return PROXY_MALFORMED;
	protocol = word_take(&at);
	if (strcmp(protocol, "UNKNOWN") == 0)
		return PROXY_HEADER;
	if (strcmp(protocol, "TCP4") == 0 && addresses_parse(AF_INET, at, &header->from) == 0)
		return PROXY_HEADER;
	if (strcmp(protocol, "TCP6") == 0 && addresses_parse(AF_INET6, at, &header->from) == 0)
		return PROXY_HEADER;
	return PROXY_MALFORMED;
}

/* Version 2. */

#define HEAD_BYTES 16 /* before the addresses */
#define AT_COMMAND 12
#define AT_FAMILY 13
#define AT_LEN 14

#define COMMAND_LOCAL 0x20
#define COMMAND_PROXY 0x21

#define TLV_HEAD_BYTES 3
#define TLV_CRC32C 0x03
#define CRC_BYTES 4

/* By the upper half of the byte of family and protocol; UNSPEC has no addresses to know. */
static const struct {
	int family;
	size_t bytes; /* of both addresses, with ports */
} families[] = {
	{ AF_UNSPEC, 0 },
	{ AF_INET, 12 },
	{ AF_INET6, 36 },
	{ AF_UNIX, 216 },
};

#define PROTOCOL_MAX 2 /* UNSPEC, STREAM, DGRAM */

/* CRC-32C of RFC 4960, appendix B, bit by bit: for some hundred bytes of a connection. */
static uint32_t crc_add(uint32_t crc, const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
	}
	return crc;
}

/* Whether the checksum at `at` is that of the header with zeros in its place. */
static int crc_is_right(const unsigned char *bytes, size_t len, size_t at)
{
	static const unsigned char zeros[CRC_BYTES];
	uint32_t crc = crc_add(UINT32_MAX, bytes, at), told;

	crc = crc_add(crc, zeros, CRC_BYTES);
	crc = ~crc_add(crc, bytes + at + CRC_BYTES, len - at - CRC_BYTES);
	memcpy(&told, bytes + at, sizeof(told));
	return ntohl(told) == crc;
}

static enum proxy_result binary_parse(const unsigned char *bytes, size_t len,
				      struct proxy_header *header)
{
	struct sockaddr_in *four = (struct sockaddr_in *)&header->from;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&header->from;
	const unsigned char *from = bytes + HEAD_BYTES;
	size_t number, at;

	/* What has come of the head. */
	if (len > AT_COMMAND && bytes[AT_COMMAND] != COMMAND_LOCAL &&
	    bytes[AT_COMMAND] != COMMAND_PROXY)
		return PROXY_MALFORMED;
	if (len > AT_FAMILY && bytes[AT_COMMAND] == COMMAND_PROXY &&
	    (bytes[AT_FAMILY] >> 4 >= sizeof(families) / sizeof(families[0]) ||
	     (bytes[AT_FAMILY] & 0xf) > PROTOCOL_MAX))
		return PROXY_MALFORMED;
	if (len < HEAD_BYTES)
		return PROXY_MORE;
	header->len = HEAD_BYTES + ((size_t)bytes[AT_LEN] << 8 | bytes[AT_LEN + 1]);
	if (header->len > PROXY_HEADER_MAX)
		return PROXY_MALFORMED;
	if (len < header->len)
		return PROXY_MORE;

	/* The source is the first address and the first port. */
	number = bytes[AT_FAMILY] >> 4;
	if (bytes[AT_COMMAND] == COMMAND_LOCAL || number == 0 || (bytes[AT_FAMILY] & 0xf) == 0)
		return PROXY_HEADER;
	at = HEAD_BYTES + families[number].bytes;
	if (header->len < at)
		return PROXY_MALFORMED;
	if (families[number].family != AF_UNIX)
		header->from.ss_family = (sa_family_t)families[number].family;
	if (families[number].family == AF_INET) {
		memcpy(&four->sin_addr, from, sizeof(four->sin_addr));
		memcpy(&four->sin_port, from + 2 * sizeof(four->sin_addr), sizeof(four->sin_port));
	} else if (families[number].family == AF_INET6) {
		memcpy(&six->sin6_addr, from, sizeof(six->sin6_addr));
		memcpy(&six->sin6_port, from + 2 * sizeof(six->sin6_addr), sizeof(six->sin6_port));
	}

	/* The TLVs, to the end of the header. */
	while (at < header->len) {
		size_t value_len;

		if (header->len - at < TLV_HEAD_BYTES)
			return PROXY_MALFORMED;
		value_len = (size_t)bytes[at + 1] << 8 | bytes[at + 2];
		if (value_len > header->len - at - TLV_HEAD_BYTES)
			return PROXY_MALFORMED;
		if (bytes[at] == TLV_CRC32C &&
		    (value_len != CRC_BYTES ||
		     !crc_is_right(bytes, header->len, at + TLV_HEAD_BYTES)))
			return PROXY_MALFORMED;
		at += TLV_HEAD_BYTES + value_len;
	}
	return PROXY_HEADER;
}

/* Each version is told by its beginning, as far as that has come. */
enum proxy_result proxy_parse(const void *bytes, size_t len, struct proxy_header *header)
{
	size_t line_len = strlen(line_begin), signature_len = sizeof(signature);

	memset(header, 0, sizeof(*header));
	if (len == 0)
		return PROXY_MORE;
	if (memcmp(bytes, line_begin, len < line_len ? len : line_len) == 0)
		return line_parse(bytes, len, header);
	if (memcmp(bytes, signature, len < signature_len ? len : signature_len) == 0)
		return binary_parse(bytes, len, header);
	return PROXY_MALFORMED;
}
