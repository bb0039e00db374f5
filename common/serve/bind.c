#include "common/serve/bind.h"

#include "common/check.h"
#include "common/config.h"
#include "common/log.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096

static void malformed(const char *setting, const char *address)
{
	log_fatal("%s is \"%s\": allowed is host:port with a port from 1 to 65535, or off", setting,
		  address);
}

void bind_check(const char *setting, const char *address)
{
	char *text = strdup(address), *host;
	int port;

	check(text != NULL);
	if (strcmp(address, "off") != 0 && config_address(text, &host, &port))
		malformed(setting, address);
	free(text);
}

int bind_tcp(const char *setting, const char *address)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE },
			*list;
	char *text = strdup(address), *host, service[16];
	int port, fd, rc, on = 1;

	check(text != NULL);
	if (strcmp(address, "off") == 0) {
		free(text);
		return -1;
	}
	if (config_address(text, &host, &port))
		malformed(setting, address);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		log_fatal("%s is \"%s\": %s", setting, address, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, address, strerror(errno));
	freeaddrinfo(list);
	free(text);
	return fd;
}

/* Whether a process accepts connections on this socket file. */
static int unix_is_alive(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int alive = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;

	if (fd >= 0)
		close(fd);
	return alive;
}

int bind_unix(const char *setting, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		log_fatal("%s is \"%s\": allowed is a path of at most %zu bytes", setting, path,
			  sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	if (unix_is_alive(&address))
		log_fatal("%s is \"%s\": another process listens there", setting, path);
	unlink(path);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
	return fd;
}
