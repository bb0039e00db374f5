/*
 * The gateway's socket API, a client of it. COUPON_LISTEN names its address as host:port, or as
 * /path or unix:path of a Unix socket.
 */
#ifndef CLIENT_GATEWAY_H
#define CLIENT_GATEWAY_H

#include <sys/socket.h>

struct gateway_address {
	struct sockaddr_storage address;
	socklen_t len;
};

/* Resolves COUPON_LISTEN, whose value is `text`. An invalid one ends the process. */
void gateway_address_read(struct gateway_address *address, const char *text);

/* A non-blocking socket that is connecting or connected. -1 with errno. */
int gateway_connect(const struct gateway_address *address);

/* The outcome of a connect that has become writable: 0, or an errno. */
int gateway_connect_error(int fd);

/*
 * Sends one request line and returns the reply line, both without their line end; the caller frees
 * it. Ends the process when there is no reply.
 */
char *gateway_exchange(const char *listen_text, const char *request);

#endif
