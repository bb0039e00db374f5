#include "client/gateway.h"

#include "common/check.h"
#include "common/program/config.h"
#include "common/log/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_S 15 /* to connect, send, receive: longer than the gateway's own deadlines */
#define REPLY_MAX (1 << 20)

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

static void host_read(struct gateway_address *address, const char *text)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char *copy = strdup(text), *host, service[16];
	int port, rc;

	if (!copy || config_address(copy, &host, &port))
		log_fatal("COUPON_LISTEN is \"%s\": allowed is host:port, /path or unix:path",
			  text);
	snprintf(service, sizeof(service), "%d", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		log_fatal("COUPON_LISTEN is \"%s\": the host is not known: %s", text,
			  gai_strerror(rc));
	memcpy(&address->address, found->ai_addr, found->ai_addrlen);
	address->len = found->ai_addrlen;
	freeaddrinfo(found);
	free(copy);
}

void gateway_address_read(struct gateway_address *address, const char *text)
{
	memset(address, 0, sizeof(*address));
	if (text[0] == '/')
		path_read(address, text);
	else if (strncmp(text, "unix:", 5) == 0)
		path_read(address, text + 5);
	else
		host_read(address, text);
}

static int connect_begin(const struct gateway_address *address, int flags)
{
	const struct timeval timeout = { .tv_sec = TIMEOUT_S };
	int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	const int on = 1;
	int error;

	if (fd < 0)
		return -1;
	if (address->address.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* Of a socket that blocks; that to send is that to connect, too. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (const struct sockaddr *)&address->address, address->len) == 0 ||
	    (errno == EINPROGRESS && flags == SOCK_NONBLOCK))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int gateway_connect(const struct gateway_address *address)
{
	return connect_begin(address, SOCK_NONBLOCK);
}

int gateway_connect_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

/* Of a socket with a time limit. */
static const char *error_text(int error)
{
	return strerror(error == EAGAIN || error == EINPROGRESS ? ETIMEDOUT : error);
}

char *gateway_exchange(const char *listen_text, const char *request)
{
	struct gateway_address address;
	char *reply = malloc(REPLY_MAX), *got, *stop = NULL;
	FILE *stream;
	int fd;

	check(reply != NULL);
	gateway_address_read(&address, listen_text);
	fd = connect_begin(&address, 0);
	if (fd < 0)
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", listen_text,
			  error_text(errno));
	stream = fdopen(fd, "r");
	check(stream != NULL);
	errno = 0;
	got = dprintf(fd, "%s\n", request) > 0 ? fgets(reply, REPLY_MAX, stream) : NULL;
	while (!got && ferror(stream) && errno == EINTR) { /* stopped, and continued */
		clearerr(stream);
		got = fgets(reply, REPLY_MAX, stream);
	}
	if (got) {
		stop = strchr(reply, '\n');
		errno = feof(stream) ? ECONNRESET : EMSGSIZE;
	}
	if (!stop)
		log_fatal("the gateway did not reply, and the outcome is unknown: %s",
			  error_text(errno ? errno : ECONNRESET));
	*stop = '\0';
	fclose(stream);
	return reply;
}
