#include "common/bind.h"

#include "common/check.h"
#include "common/config.h"
#include "common/log.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
