/* Where the gateway's socket API is: host:port, or a Unix socket as /path or unix:path. */
#ifndef CTL_GATEWAY_H
#define CTL_GATEWAY_H

#include <sys/socket.h>

struct gateway_address {
	struct sockaddr_storage address;
	socklen_t len;
};

/* Resolves; a text that is no such address ends the process. `setting` names it in errors. */
void gateway_address_read(struct gateway_address *address, const char *setting, const char *text);

/* A non-blocking socket that is connecting or connected. -1 with errno. */
int gateway_connect(const struct gateway_address *address);

/* The outcome of a connect that has become writable: 0, or an errno. */
int gateway_connect_error(int fd);

#endif
