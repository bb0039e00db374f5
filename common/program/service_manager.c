#include "common/program/service_manager.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* ---- listeners */

#define ADDRESS_SIZE 160

union socket_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
};

/* The address as settings have it. 0, or -1: it is neither of TCP nor a path. */
static int address_text(const union socket_address *address, char text[ADDRESS_SIZE])
{
	char host[INET6_ADDRSTRLEN];

	switch (address->any.sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		snprintf(text, ADDRESS_SIZE, "%s:%u", host, ntohs(address->v4.sin_port));
		return 0;
	case AF_INET6:
		inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
		snprintf(text, ADDRESS_SIZE, "[%s]:%u", host, ntohs(address->v6.sin6_port));
		return 0;
	case AF_UNIX:
		snprintf(text, ADDRESS_SIZE, "%.*s", (int)sizeof(address->local.sun_path),
			 address->local.sun_path);
		return *text ? 0 : -1;
	default:
		return -1;
	}
}

int service_listeners_match(struct service_listener *listeners, size_t n, const int *fds,
			    char *const names[], size_t fds_n, char error[SERVICE_ERROR_SIZE])
{
	for (size_t i = 0; i < n; i++)
		listeners[i].fd = -1;
	for (size_t i = 0; i < fds_n; i++) {
		union socket_address address = { .any = { .sa_family = AF_UNSPEC } };
		socklen_t len = sizeof(address);
		struct service_listener *listener = NULL;
		char text[ADDRESS_SIZE];
		int is_known = 0, is_unix;

		if (sd_is_socket(fds[i], AF_UNSPEC, SOCK_STREAM, 1) <= 0 ||
		    getsockname(fds[i], &address.any, &len) || address_text(&address, text)) {
			snprintf(error, SERVICE_ERROR_SIZE,
				 "systemd gives \"%s\", which is not a socket that listens on a "
				 "TCP port or a path",
				 names[i]);
			return -1;
		}
		is_unix = address.any.sa_family == AF_UNIX;
		for (size_t j = 0; j < n; j++) {
			if (strcmp(listeners[j].name, names[i]) != 0)
				continue;
			is_known = 1;
			if (listeners[j].is_unix == is_unix)
				listener = &listeners[j];
		}
		if (!listener) {
			snprintf(error, SERVICE_ERROR_SIZE,
				 is_known ? "systemd gives %s as \"%s\", which is not the kind of "
					    "address that this program takes there"
					  : "systemd gives %s as \"%s\": this program takes no "
					    "socket of that name (FileDescriptorName=)",
				 text, names[i]);
			return -1;
		}
		if (listener->fd >= 0) {
			snprintf(error, SERVICE_ERROR_SIZE,
				 "systemd gives %s and %s as \"%s\": one of them is allowed",
				 *listener->address, text, names[i]);
			return -1;
		}
		if (strcmp(*listener->address, "off") == 0) {
			snprintf(error, SERVICE_ERROR_SIZE,
				 "%s is \"off\", but systemd gives %s as \"%s\"", listener->setting,
				 text, names[i]);
			return -1;
		}
		listener->fd = fds[i];
		free(*listener->address);
		*listener->address = checked(strdup(text));
	}
	return 0;
}

void service_listeners_take(struct service_listener *listeners, size_t n)
{
	char **names = NULL, error[SERVICE_ERROR_SIZE];
	int given = sd_listen_fds_with_names(1, &names), *fds;

	if (given < 0)
		log_fatal("the sockets that systemd gives cannot be taken: %s", strerror(-given));
	fds = checked(calloc((size_t)given + 1, sizeof(*fds)));
	for (int i = 0; i < given; i++)
		fds[i] = SD_LISTEN_FDS_START + i;
	if (service_listeners_match(listeners, n, fds, names, (size_t)given, error))
		log_fatal("%s", error);
	for (int i = 0; i < given; i++) {
		int flags = fcntl(fds[i], F_GETFL);

		check(flags >= 0 && fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) == 0);
		free(names[i]);
	}
	free(names);
	free(fds);
}

/* ---- what is to be told */

/* Appends to what may be cut off. */
static void text_add(char text[SERVICE_TEXT_SIZE], const char *name, const char *value)
{
	size_t len = strlen(text);

	snprintf(text + len, SERVICE_TEXT_SIZE - len, "%s%s", name, value);
}

size_t service_text(const struct service_told *told, int64_t now_ms, int is_ready, int is_alive,
		    const char *status, char text[SERVICE_TEXT_SIZE], struct service_told *next)
{
	*next = *told;
	*text = '\0';
	snprintf(next->status, sizeof(next->status), "%s", status);
	/* A line is an assignment. */
	for (char *c = next->status; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	if (strcmp(next->status, told->status) != 0) {
		text_add(text, "STATUS=", next->status);
		text_add(text, "\n", "");
	}
	if (!told->is_ready && (is_ready || now_ms - told->begun_ms >= SERVICE_READY_WAIT_MS)) {
		next->is_ready = 1;
		text_add(text, "READY=1\n", "");
	}
	if (told->watchdog_ms && is_alive && now_ms - told->beat_ms >= told->watchdog_ms) {
		next->beat_ms = now_ms;
		text_add(text, "WATCHDOG=1\n", "");
	}
	return strlen(text);
}

/* ---- the one systemd */

#define EVERY_MS 250

/* What another loop leaves for the main one. */
struct loop_turns {
	atomic_int has_turned, is_ready;
	atomic_uint reloads;
};

/* What is told once. A message has one of them: of several systemd takes the last. */
enum once { RELOADING, RELOADED, STOPPING, ONCE_N };

static struct {
	int fd; /* -1: nobody is to be told */
	struct sockaddr_un address;
	socklen_t address_len;
	int64_t watch_ms;         /* a quarter of the time of the watchdog; 0: there is none */
	struct service_told told; /* the main loop's */
	atomic_int is_ready;      /* READY=1 was told */
	int64_t looked_ms;
	struct loop_turns *loops;
	size_t loops_n;
	pthread_mutex_t lock;                 /* of what follows */
	char once[ONCE_N][SERVICE_TEXT_SIZE]; /* "": it is not to be told, or was sent */
} manager = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

/*
 * Not by sd_notify(): it waits while systemd reads nothing, and a loop must not hang because
 * something else does. What was not sent is sent with the next look. 0, or -1.
 */
static int text_send(const char *text, size_t len)
{
	if (manager.fd < 0 || len == 0)
		return 0;
	return sendto(manager.fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL,
		      (const struct sockaddr *)&manager.address, manager.address_len) < 0
		       ? -1
		       : 0;
}

/* Sends what is told once and was not sent yet. 0, or -1: some of it is left. */
static int once_send(void)
{
	int left = 0;

	pthread_mutex_lock(&manager.lock);
	for (int i = 0; i < ONCE_N && !left; i++) {
		left = text_send(manager.once[i], strlen(manager.once[i]));
		if (!left)
			*manager.once[i] = '\0';
	}
	pthread_mutex_unlock(&manager.lock);
	return left;
}

static void once_tell(enum once once, const char *text)
{
	pthread_mutex_lock(&manager.lock);
	/* Nobody needs the rest of an earlier reload. */
	if (once != RELOADED)
		*manager.once[RELOADING] = *manager.once[RELOADED] = '\0';
	snprintf(manager.once[once], sizeof(manager.once[once]), "%s", text);
	pthread_mutex_unlock(&manager.lock);
	once_send();
}

void service_begin(size_t loops)
{
	const char *path = getenv("NOTIFY_SOCKET"), *started = getenv("SYSTEMD_EXEC_PID");
	size_t len = path ? strlen(path) : 0, size = (loops + 1) * sizeof(*manager.loops);
	uint64_t watchdog_us;

	manager.loops = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(manager.loops != MAP_FAILED);
	manager.loops_n = loops;
	/* What has started this program may be the service, and not mean it. */
	if (started && strtoll(started, NULL, 10) != getpid())
		return;
	/* A path, or @ and an abstract name. */
	if (len < 2 || (*path != '/' && *path != '@') || len >= sizeof(manager.address.sun_path))
		return;
	manager.address.sun_family = AF_UNIX;
	memcpy(manager.address.sun_path, path, len);
	manager.address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (*path == '@')
		manager.address.sun_path[0] = '\0';
	else
		manager.address_len++;
	manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (manager.fd < 0)
		log_fatal("systemd cannot be told anything: %s", strerror(errno));
	manager.told.begun_ms = clock_monotonic_ms();
	if (sd_watchdog_enabled(1, &watchdog_us) > 0) {
		int64_t half_ms = (int64_t)(watchdog_us / 2000);

		manager.told.watchdog_ms = half_ms > 0 ? half_ms : 1;
		manager.watch_ms = (manager.told.watchdog_ms + 1) / 2;
	}
}

void service_leave(void)
{
	if (manager.fd >= 0)
		close(manager.fd);
	manager.fd = -1;
}

int64_t service_watch_ms(void)
{
	return manager.watch_ms;
}

int64_t service_every_ms(void)
{
	if (manager.fd < 0)
		return INT64_MAX;
	return manager.watch_ms && manager.watch_ms < EVERY_MS ? manager.watch_ms : EVERY_MS;
}

int service_is_due(int64_t now_ms)
{
	return manager.fd >= 0 && now_ms - manager.looked_ms >= service_every_ms();
}

void service_tell(int64_t now_ms, int is_ready, int is_alive, const char *status)
{
	struct service_told next;
	char text[SERVICE_TEXT_SIZE];
	size_t len;

	manager.looked_ms = now_ms;
	len = service_text(&manager.told, now_ms, is_ready, is_alive, status, text, &next);
	if (once_send() || text_send(text, len))
		return;
	manager.told = next;
	manager.is_ready = next.is_ready;
}

void service_turned(size_t loop, int is_ready)
{
	check(loop < manager.loops_n);
	manager.loops[loop].is_ready = is_ready;
	manager.loops[loop].has_turned = 1;
}

int service_loop_has_turned(size_t loop)
{
	check(loop < manager.loops_n);
	return atomic_exchange(&manager.loops[loop].has_turned, 0);
}

int service_loop_is_ready(size_t loop)
{
	check(loop < manager.loops_n);
	return manager.loops[loop].is_ready;
}

void service_reloading(void)
{
	char text[SERVICE_TEXT_SIZE];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\n",
		 clock_monotonic_us());
	if (manager.is_ready)
		once_tell(RELOADING, text);
}

void service_reloaded(void)
{
	if (manager.is_ready)
		once_tell(RELOADED, "READY=1\n");
}

void service_loop_reloaded(size_t loop)
{
	check(loop < manager.loops_n);
	manager.loops[loop].reloads++;
}

unsigned service_loop_reloads(size_t loop)
{
	check(loop < manager.loops_n);
	return manager.loops[loop].reloads;
}

void service_stopping(int64_t most_ms, const char *status)
{
	char text[SERVICE_TEXT_SIZE];

	snprintf(text, sizeof(text), "STOPPING=1\nSTATUS=%s\nEXTEND_TIMEOUT_USEC=%" PRId64 "\n",
		 status, most_ms * 1000);
	once_tell(STOPPING, text);
}
