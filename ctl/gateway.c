#include "ctl/gateway.h"

#include "common/config.h"
#include "common/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static void path_read(struct gateway_address *address, const char *setting, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->address;

	if (!*path || strlen(path) >= sizeof(un->sun_path))
		log_fatal("%s is \"%s\": a Unix socket's path has 1 to %zu bytes", setting, path,
			  sizeof(un->sun_path) - 1);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, strlen(path) + 1);
	address->len = sizeof(*un);
}

static void host_read(struct gateway_address *address, const char *setting, const char *text)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char *copy = strdup(text), *host, service[16];
	int port, rc;

	if (!copy || config_address(copy, &host, &port))
		log_fatal("%s is \"%s\": allowed is host:port, /path or unix:path", setting, text);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal("%s is \"%s\": the host is not known: %s", setting, text,
			  gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	freeaddrinfo(found);
	free(copy);
}

void gateway_address_read(struct gateway_address *address, const char *setting, const char *text)
{
	memset(address, 0, sizeof(*address));
	if (text[0] == '/')
		path_read(address, setting, text);
	else if (strncmp(text, "unix:", 5) == 0)
		path_read(address, setting, text + 5);
	else
		host_read(address, setting, text);
}

int gateway_connect(const struct gateway_address *address)
{
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const int on = 1;
	int error;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&address->address, address->len) == 0 ||
	    errno == EINPROGRESS)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int gateway_connect_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}
