/* Where a gateway listens, and connections to it. */
#pragma once

#include "common/program/config.h"

#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/socket.h>

#define GATEWAY_KEY_MAX 4096 /* bytes of COUPON_GATEWAY_KEY */

/*
 * COUPON_LISTEN: host:port, or /path or unix:path of a Unix socket; or COUPON_HTTP_LISTEN. And
 * COUPON_TLS_CA and COUPON_GATEWAY_KEY.
 */
struct gateway_address {
	struct sockaddr_storage address;
	socklen_t len;
	int is_http;
	SSL_CTX *tls;    /* NULL: no TLS */
	char host[256];  /* that the gateway has to be, under TLS; of a Unix socket "" */
	const char *key; /* an API key or a token, of the settings; "": none */
};

/*
 * Resolves COUPON_LISTEN, or COUPON_HTTP_LISTEN. An invalid setting ends the process; `away` is the
 * exit status if the host is not known.
 */
void gateway_address_read(struct gateway_address *address, const struct config *config, int away);
void gateway_address_read_http(struct gateway_address *address, const struct config *config);

/* Whether the address is in 127.0.0.0/8. */
int gateway_address_is_loopback(const struct gateway_address *address);

/*
 * A socket that is connected, or connecting; -1 with errno. It comes from the address `source` of
 * 127.0.0.0/8, where 1 is 127.0.0.1; 0: from the one that the kernel chooses.
 */
int gateway_connect(const struct gateway_address *address, uint32_t source);

/* Makes the TLS session of one connection. Only where address->tls is set. */
SSL *gateway_session_new(const struct gateway_address *address);
