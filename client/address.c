/* Where a gateway listens, and connections to it. */
#include "client/client.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/trust.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define KEY_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

static void path_read(struct gateway_address *address, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->address;

	if (!*path || strlen(path) >= sizeof(un->sun_path))
		log_fatal("COUPON_LISTEN is \"%s\": a Unix socket's path has 1 to %zu bytes", path,
			  sizeof(un->sun_path) - 1);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, strlen(path) + 1);
	address->len = sizeof(*un);
}

static void host_read(struct gateway_address *address, const char *setting, const char *text,
		      const char *allowed, int away)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char *copy = checked(strdup(text)), *host, service[16];
	int port, rc;

	if (config_address(copy, &host, &port) || strlen(host) >= sizeof(address->host))
		log_fatal("%s is \"%s\": allowed is %s", setting, text, allowed);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal_as(away, "%s is \"%s\": the host is not known: %s", setting, text,
			     gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	strcpy(address->host, host);
	freeaddrinfo(found);
	free(copy);
}

static void tls_read(struct gateway_address *address, const char *authorities)
{
	static const unsigned char lines[] = "\x08"
					     "couponmq",
				   http[] = "\x08"
					    "http/1.1"; /* for ALPN */
	char error[TRUST_ERROR_SIZE];
	SSL_CTX *context;

	if (!*authorities)
		return;
	context = checked(SSL_CTX_new(TLS_client_method()));
	trust_authorities_set(TRUST_GATEWAY, authorities);
	if (trust_context_set(context, TRUST_GATEWAY, address->host, error))
		log_fatal("%s", error);
	check(SSL_CTX_set_alpn_protos(context, address->is_http ? http : lines,
				      sizeof(lines) - 1) == 0);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	address->tls = context;
}

static void address_begin(struct gateway_address *address, const struct config *config)
{
	memset(address, 0, sizeof(*address));
	address->key = config->gateway_key;
	if (strspn(address->key, KEY_CHARACTERS) < strlen(address->key) ||
	    strlen(address->key) > GATEWAY_KEY_MAX)
		log_fatal("COUPON_GATEWAY_KEY is not shown: allowed are up to %d letters, digits "
			  "and . _ - of an API key or a token",
			  GATEWAY_KEY_MAX);
}

void gateway_address_read(struct gateway_address *address, const struct config *config, int away)
{
	const char *text = config->listen;

	address_begin(address, config);
	if (text[0] == '/') {
		path_read(address, text);
	} else if (strncmp(text, "unix:", 5) == 0) {
		path_read(address, text + 5);
	} else {
		host_read(address, "COUPON_LISTEN", text, "host:port, /path or unix:path", away);
		tls_read(address, config->tls_ca);
	}
}

void gateway_address_read_http(struct gateway_address *address, const struct config *config)
{
	address_begin(address, config);
	address->is_http = 1;
	host_read(address, "COUPON_HTTP_LISTEN", config->http_listen, "host:port", 1);
	tls_read(address, config->tls_ca);
}

int gateway_address_is_loopback(const struct gateway_address *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&address->address;

	return address->address.ss_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == 127;
}

int gateway_connect(const struct gateway_address *address, uint32_t source)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(((uint32_t)127 << 24) + source),
	};
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int error = 0;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/*
	 * The kernel chooses the port when it connects: then it only has to be free for this pair
	 * of addresses.
	 */
	if (source != 0 && (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) ||
			    bind(fd, (const struct sockaddr *)&in, sizeof(in))))
		error = errno;
	else if (connect(fd, (const struct sockaddr *)&address->address, address->len) &&
		 errno != EINPROGRESS)
		error = errno;
	if (error == 0)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

SSL *gateway_session_new(const struct gateway_address *address)
{
	SSL *session = checked(SSL_new(address->tls));
	struct in6_addr numeric;

	if (inet_pton(AF_INET, address->host, &numeric) != 1 &&
	    inet_pton(AF_INET6, address->host, &numeric) != 1)
		SSL_set_tlsext_host_name(session, address->host);
	SSL_set_connect_state(session);
	return session;
}
