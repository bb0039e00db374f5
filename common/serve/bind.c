#include "common/serve/bind.h"

#include "common/check.h"
#include "common/program/config.h"
#include "common/log/log.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* What a path is, for a process that wants to listen there. */
enum unix_path { PATH_FREE, PATH_STALE, PATH_SERVED, PATH_FOREIGN };

static enum unix_path unix_path_inspect(const struct sockaddr_un *address)
{
	struct stat status;
	int fd, rc, error;

	if (lstat(address->sun_path, &status))
		return errno == ENOENT ? PATH_FREE : PATH_FOREIGN;
	if (!S_ISSOCK(status.st_mode))
		return PATH_FOREIGN;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return PATH_FOREIGN;
	rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
	error = errno;
	close(fd);
	if (rc == 0 || error == EAGAIN) /* EAGAIN: its backlog is full */
		return PATH_SERVED;
	return error == ECONNREFUSED ? PATH_STALE : PATH_FOREIGN;
}

static void unix_path_clear(const char *setting, const struct sockaddr_un *address)
{
	const char *path = address->sun_path;

	switch (unix_path_inspect(address)) {
	case PATH_FREE:
		return;
	case PATH_STALE:
		if (unlink(path) && errno != ENOENT)
			log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
		return;
	case PATH_SERVED:
		log_fatal("%s is \"%s\": another process listens there", setting, path);
	case PATH_FOREIGN:
		log_fatal("%s is \"%s\": the file there is not the socket of a gateway that has "
			  "ended, so it is not replaced; remove it, or choose another path",
			  setting, path);
	}
}

int bind_unix(const char *setting, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		log_fatal("%s is \"%s\": allowed is a path of at most %zu bytes", setting, path,
			  sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	unix_path_clear(setting, &address);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, BACKLOG))
		log_fatal("%s is \"%s\": %s", setting, path, strerror(errno));
	return fd;
}

/* The file of a socket that is shut down refuses connections, also while copies of it are open. */
void bind_unix_end(int fd, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	shutdown(fd, SHUT_RDWR);
	close(fd);
	strcpy(address.sun_path, path);
	if (unix_path_inspect(&address) == PATH_STALE)
		unlink(path);
}
