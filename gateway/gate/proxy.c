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
#include "gateway/gate/proxy.h"

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

/* Whether the bytes begin as `begin` does, as far as both go. */
static int begins(const unsigned char *bytes, size_t len, const void *begin, size_t begin_len)
{
	return memcmp(bytes, begin, len < begin_len ? len : begin_len) == 0;
}

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

/* The line without its end; it begins as line_begin does. */
static enum proxy_result line_read(const unsigned char *bytes, size_t len,
				   struct proxy_header *header)
{
	char line[LINE_MAX_BYTES + 1], *at = line + strlen(line_begin);
	const char *protocol;

	memcpy(line, bytes, len);
	line[len] = '\0';
	if (strlen(line) != len)
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

static enum proxy_result line_parse(const unsigned char *bytes, size_t len,
				    struct proxy_header *header)
{
	for (size_t i = 0; i < len; i++) {
		if (i == LINE_MAX_BYTES - 1 || bytes[i] == '\n')
			return PROXY_MALFORMED;
		if (bytes[i] != '\r')
			continue;
		if (i + 1 == len)
			return PROXY_MORE;
		header->len = i + 2;
		return bytes[i + 1] == '\n' ? line_read(bytes, i, header) : PROXY_MALFORMED;
	}
	return PROXY_MORE;
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

static int is_family(unsigned char byte)
{
	return byte >> 4 < sizeof(families) / sizeof(families[0]) && (byte & 0xf) <= PROTOCOL_MAX;
}

static size_t length_read(const unsigned char *bytes)
{
	return (size_t)bytes[0] << 8 | bytes[1];
}

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

/* Reads the TLVs from `at` on, to the end of the header. */
static enum proxy_result tlvs_read(const unsigned char *bytes, size_t len, size_t at)
{
	while (at < len) {
		size_t value_len;

		if (len - at < TLV_HEAD_BYTES)
			return PROXY_MALFORMED;
		value_len = length_read(bytes + at + 1);
		if (value_len > len - at - TLV_HEAD_BYTES)
			return PROXY_MALFORMED;
		if (bytes[at] == TLV_CRC32C &&
		    (value_len != CRC_BYTES || !crc_is_right(bytes, len, at + TLV_HEAD_BYTES)))
			return PROXY_MALFORMED;
		at += TLV_HEAD_BYTES + value_len;
	}
	return PROXY_HEADER;
}

/* The source is the first address and the first port. */
static void from_read(int family, const unsigned char *at, struct sockaddr_storage *from)
{
	struct sockaddr_in *four = (struct sockaddr_in *)from;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)from;

	from->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		memcpy(&four->sin_addr, at, sizeof(four->sin_addr));
		memcpy(&four->sin_port, at + 2 * sizeof(four->sin_addr), sizeof(four->sin_port));
	} else {
		memcpy(&six->sin6_addr, at, sizeof(six->sin6_addr));
		memcpy(&six->sin6_port, at + 2 * sizeof(six->sin6_addr), sizeof(six->sin6_port));
	}
}

/* All of the header is there. */
static enum proxy_result binary_read(const unsigned char *bytes, struct proxy_header *header)
{
	size_t number = bytes[AT_FAMILY] >> 4, addresses;

	if (bytes[AT_COMMAND] == COMMAND_LOCAL || number == 0 || (bytes[AT_FAMILY] & 0xf) == 0)
		return PROXY_HEADER;
	addresses = families[number].bytes;
	if (header->len < HEAD_BYTES + addresses)
		return PROXY_MALFORMED;
	if (families[number].family != AF_UNIX)
		from_read(families[number].family, bytes + HEAD_BYTES, &header->from);
	return tlvs_read(bytes, header->len, HEAD_BYTES + addresses);
}

static enum proxy_result binary_parse(const unsigned char *bytes, size_t len,
				      struct proxy_header *header)
{
	if (len > AT_COMMAND && bytes[AT_COMMAND] != COMMAND_LOCAL &&
	    bytes[AT_COMMAND] != COMMAND_PROXY)
		return PROXY_MALFORMED;
	if (len > AT_FAMILY && bytes[AT_COMMAND] == COMMAND_PROXY && !is_family(bytes[AT_FAMILY]))
		return PROXY_MALFORMED;
	if (len < HEAD_BYTES)
		return PROXY_MORE;
	header->len = HEAD_BYTES + length_read(bytes + AT_LEN);
	if (header->len > PROXY_HEADER_MAX)
		return PROXY_MALFORMED;
	return len < header->len ? PROXY_MORE : binary_read(bytes, header);
}

enum proxy_result proxy_parse(const void *bytes, size_t len, struct proxy_header *header)
{
	memset(header, 0, sizeof(*header));
	if (len == 0)
		return PROXY_MORE;
	if (begins(bytes, len, line_begin, strlen(line_begin)))
		return line_parse(bytes, len, header);
	if (begins(bytes, len, signature, sizeof(signature)))
		return binary_parse(bytes, len, header);
	return PROXY_MALFORMED;
}
