#include "client/gateway.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/program/config.h"
#include "common/log/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_TIMEOUT_MS 15000 /* longer than the gateway's own deadlines */
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

/* Waits until the socket is ready for `events`. 0, or an errno. */
static int ready_wait(int fd, short events, int64_t deadline_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int64_t left_ms = deadline_ms - clock_monotonic_ms();
	int n;

	do
		n = poll(&poll_fd, 1, left_ms > 0 ? (int)left_ms : 0);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : n < 0 ? errno : ETIMEDOUT;
}

static int all_send(int fd, const char *bytes, size_t len, int64_t deadline_ms)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			return errno;
		} else if (ready_wait(fd, POLLOUT, deadline_ms)) {
			return ETIMEDOUT;
		}
	}
	return 0;
}

/* Receives one line and ends it with NUL instead of its line end. 0, or an errno. */
static int line_receive(int fd, char line[REPLY_MAX], int64_t deadline_ms)
{
	size_t len = 0;

	for (;;) {
		char *stop = memchr(line, '\n', len);
		ssize_t n;
		int rc;

		if (stop) {
			*stop = '\0';
			return 0;
		}
		if (len == REPLY_MAX)
			return EMSGSIZE;
		rc = ready_wait(fd, POLLIN, deadline_ms);
		if (rc)
			return rc;
		n = recv(fd, line + len, REPLY_MAX - len, 0);
		if (n == 0)
			return ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return errno;
		if (n > 0)
			len += (size_t)n;
	}
}

static int connect_wait(const struct gateway_address *address, int64_t deadline_ms, int *fd)
{
	int error;

	*fd = gateway_connect(address);
	error = *fd < 0 ? errno : ready_wait(*fd, POLLOUT, deadline_ms);
	return error ? error : gateway_connect_error(*fd);
}

char *gateway_exchange(const char *listen_text, const char *request)
{
	int64_t deadline_ms = clock_monotonic_ms() + REPLY_TIMEOUT_MS;
	struct gateway_address address;
	char *reply = malloc(REPLY_MAX);
	int fd, error;

	check(reply != NULL);
	gateway_address_read(&address, listen_text);
	error = connect_wait(&address, deadline_ms, &fd);
	if (error)
		log_fatal("the gateway at COUPON_LISTEN, %s, cannot be reached: %s", listen_text,
			  strerror(error));
	error = all_send(fd, request, strlen(request), deadline_ms);
	if (!error)
		error = all_send(fd, "\n", 1, deadline_ms);
	if (!error)
		error = line_receive(fd, reply, deadline_ms);
	if (error)
		log_fatal("the gateway did not reply, and the outcome is unknown: %s",
			  strerror(error));
	close(fd);
	return reply;
}
