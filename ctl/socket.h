/* Where the gateway's socket API is: host:port, or a Unix socket as /path or unix:path. */
#ifndef CTL_SOCKET_H
#define CTL_SOCKET_H

#include <sys/socket.h>

struct socket_address {
	struct sockaddr_storage address;
	socklen_t len;
};

/* Resolves; a text that is no such address ends the process. `setting` names it in errors. */
void socket_address_read(struct socket_address *address, const char *setting, const char *text);

/* A non-blocking socket that is connecting or connected. -1 with errno. */
int socket_connect(const struct socket_address *address);

/* The outcome of a connect that has become writable: 0, or an errno. */
int socket_connect_error(int fd);

#endif
