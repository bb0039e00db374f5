/*
 * Locks in ZooKeeper (https://zookeeper.apache.org/doc/current/recipes.html, "Locks" and "Shared
 * Locks"): each session that asks makes an ephemeral node with a number in the folder of the name;
 * the lowest one has the lock. A writer waits for the node before its own, a reader for the last
 * writer before it, and each watches only that one. Waiters queue in the order of asking, so
 * exclusive, fair and write are one kind here.
 *
 * The lease is the session's timeout: its node disappears when the servers have not heard of the
 * session for so long. The library's own thread keeps the session alive. The fence is the
 * transaction that made the node (czxid).
 */
#include "lock/backend.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/receive.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

#define ROOT "/couponmq-lock"
#define CONNECT_TIMEOUT_MS 5000
#define FOLDER_SIZE (sizeof(ROOT) + 2 + 3 * LOCK_NAME_MAX)
#define NODE_SIZE (2 + ULID_LEN + 1 + 10 + 1) /* w-ULID-0000000000 */
#define SEQUENCE_DIGITS 10
#define PLACE_ATTEMPTS 3
#define WHY_SIZE 160

struct zookeeper_lock_session {
	const char *hosts;
	zhandle_t *handle;  /* NULL: none */
	int64_t timeout_ms; /* that was asked for */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	/* under the mutex, set by ZooKeeper's thread */
	int is_connected;
	int is_expired;
	int has_left; /* the node that is watched, or the session */
	/* of the caller alone */
	char folder[FOLDER_SIZE];
	char prefix[NODE_SIZE]; /* of the own node: unique */
	char node[NODE_SIZE];   /* "": none */
	char why[WHY_SIZE];
};

static void on_session(zhandle_t *handle, int type, int state, const char *path, void *opaque)
{
	struct zookeeper_lock_session *session = opaque;

	(void)handle, (void)path;
	if (type != ZOO_SESSION_EVENT)
		return;
	pthread_mutex_lock(&session->mutex);
	session->is_connected = state == ZOO_CONNECTED_STATE;
	session->is_expired |= state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE;
	session->has_left |= session->is_expired;
	pthread_cond_signal(&session->changed);
	pthread_mutex_unlock(&session->mutex);
}

static void on_watch(zhandle_t *handle, int type, int state, const char *path, void *opaque)
{
	struct zookeeper_lock_session *session = opaque;

	(void)handle, (void)type, (void)state, (void)path;
	pthread_mutex_lock(&session->mutex);
	session->has_left = 1;
	pthread_cond_signal(&session->changed);
	pthread_mutex_unlock(&session->mutex);
}

static void *session_open(const char *hosts)
{
	struct zookeeper_lock_session *session = checked(calloc(1, sizeof(*session)));

	session->hosts = hosts;
	check(pthread_mutex_init(&session->mutex, NULL) == 0);
	check(pthread_cond_init(&session->changed, NULL) == 0);
	zoo_set_debug_level((ZooLogLevel)0);
	return session;
}

static void handle_close(struct zookeeper_lock_session *session)
{
	if (session->handle)
		zookeeper_close(session->handle);
	session->handle = NULL;
	session->node[0] = '\0';
	session->is_connected = session->is_expired = session->has_left = 0;
}

static void session_close(void *opaque)
{
	struct zookeeper_lock_session *session = opaque;

	handle_close(session);
	pthread_cond_destroy(&session->changed);
	pthread_mutex_destroy(&session->mutex);
	free(session);
}

static enum lock_reply failed(struct zookeeper_lock_session *session, int code)
{
	snprintf(session->why, sizeof(session->why), "%s", zerror(code));
	switch (code) {
	case ZCONNECTIONLOSS:
	case ZOPERATIONTIMEOUT:
	case ZSESSIONEXPIRED:
	case ZINVALIDSTATE:
	case ZCLOSING:
		return LOCK_REPLY_DOWN;
	default:
		return LOCK_REPLY_ERROR;
	}
}

/* Waits until `*flag`, or the session has expired, or the time has come. Returns the flag. */
static int flag_wait(struct zookeeper_lock_session *session, const int *flag, int64_t until_ms)
{
	const int64_t most_ms = INT32_MAX * (int64_t)1000,
		      ms = until_ms < most_ms ? until_ms : most_ms;
	const struct timespec until = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	int is_set;

	pthread_mutex_lock(&session->mutex);
	while (!*flag && !session->is_expired)
		if (pthread_cond_clockwait(&session->changed, &session->mutex, CLOCK_MONOTONIC,
					   &until) == ETIMEDOUT)
			break;
	is_set = *flag;
	pthread_mutex_unlock(&session->mutex);
	return is_set;
}

static int is_expired(struct zookeeper_lock_session *session)
{
	int expired;

	pthread_mutex_lock(&session->mutex);
	expired = session->is_expired;
	pthread_mutex_unlock(&session->mutex);
	return expired;
}

/* ZooKeeper removes the folder when nothing has been in it for a while. */
static int folder_make(struct zookeeper_lock_session *session)
{
	int code = zoo_create(session->handle, session->folder, NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
			      ZOO_CONTAINER, NULL, 0);

	if (code != ZNONODE)
		return code == ZNODEEXISTS ? ZOK : code;
	code = zoo_create(session->handle, ROOT, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT,
			  NULL, 0);
	return code == ZOK || code == ZNODEEXISTS ? folder_make(session) : code;
}

static int sequence_compare(const void *a, const void *b)
{
	const char *first = *(char *const *)a, *second = *(char *const *)b;

	return strcmp(first + strlen(first) - SEQUENCE_DIGITS,
		      second + strlen(second) - SEQUENCE_DIGITS);
}

/* The nodes in the folder by their numbers, without others. */
static int nodes_read(struct zookeeper_lock_session *session, struct String_vector *nodes)
{
	int code = zoo_get_children(session->handle, session->folder, 0, nodes), n = 0;

	if (code != ZOK)
		return code;
	for (int i = 0; i < nodes->count; i++) {
		if (strlen(nodes->data[i]) == NODE_SIZE - 1)
			nodes->data[n++] = nodes->data[i];
		else
			free(nodes->data[i]);
	}
	nodes->count = n;
	qsort(nodes->data, (size_t)n, sizeof(*nodes->data), sequence_compare);
	return ZOK;
}

static void path_of(const struct zookeeper_lock_session *session, const char *node,
		    char out[FOLDER_SIZE + NODE_SIZE])
{
	snprintf(out, FOLDER_SIZE + NODE_SIZE, "%s/%s", session->folder, node);
}

/* Makes the own node, unless an earlier attempt did whose reply was lost. */
static int node_make(struct zookeeper_lock_session *session)
{
	char path[FOLDER_SIZE + NODE_SIZE], made[FOLDER_SIZE + NODE_SIZE];
	struct String_vector nodes;
	int code = nodes_read(session, &nodes);

	if (code != ZOK)
		return code;
	session->node[0] = '\0';
	for (int i = 0; i < nodes.count; i++)
		if (strncmp(nodes.data[i], session->prefix, strlen(session->prefix)) == 0)
			snprintf(session->node, NODE_SIZE, "%s", nodes.data[i]);
	deallocate_String_vector(&nodes);
	if (session->node[0])
		return ZOK;
	path_of(session, session->prefix, path);
	code = zoo_create(session->handle, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE,
			  ZOO_EPHEMERAL_SEQUENTIAL, made, sizeof(made));
	if (code == ZOK)
		snprintf(session->node, NODE_SIZE, "%s", strrchr(made, '/') + 1);
	return code;
}

/* Waits until no other is before the own node. NO: the time has come. */
static enum lock_reply turn_wait(struct zookeeper_lock_session *session, int64_t until_ms)
{
	char before[NODE_SIZE], path[FOLDER_SIZE + NODE_SIZE];
	struct String_vector nodes;
	int code, own;

	for (;;) {
		code = nodes_read(session, &nodes);
		if (code != ZOK)
			return failed(session, code);

		/* Looks for the node that this one waits for: the last that excludes it. */
		before[0] = '\0';
		own = -1;
		for (int i = 0; i < nodes.count && own < 0; i++) {
			if (strcmp(nodes.data[i], session->node) == 0)
				own = i;
			else if (session->node[0] == 'w' || nodes.data[i][0] == 'w')
				snprintf(before, NODE_SIZE, "%s", nodes.data[i]);
		}
		deallocate_String_vector(&nodes);
		if (own < 0)
			return failed(session, ZNONODE);
		if (!before[0])
			return LOCK_REPLY_YES;
		if (clock_monotonic_ms() >= until_ms)
			return LOCK_REPLY_NO;

		path_of(session, before, path);
		pthread_mutex_lock(&session->mutex);
		session->has_left = session->is_expired;
		pthread_mutex_unlock(&session->mutex);
		/* ZNONODE: it has left meanwhile. Looks again. */
		code = zoo_wexists(session->handle, path, on_watch, session, NULL);
		if (code == ZOK)
			flag_wait(session, &session->has_left, until_ms);
		else if (code != ZNONODE)
			return failed(session, code);
	}
}

static enum lock_reply node_remove(struct zookeeper_lock_session *session)
{
	char path[FOLDER_SIZE + NODE_SIZE];
	int code;

	if (!session->node[0])
		return LOCK_REPLY_NO;
	path_of(session, session->node, path);
	session->node[0] = '\0';
	code = zoo_delete(session->handle, path, -1);
	return code == ZOK       ? LOCK_REPLY_YES
	       : code == ZNONODE ? LOCK_REPLY_NO
				 : failed(session, code);
}

static enum lock_reply fence_read(struct zookeeper_lock_session *session, struct lock_grant *grant)
{
	char path[FOLDER_SIZE + NODE_SIZE];
	struct Stat stat = { 0 };
	int code;

	path_of(session, session->node, path);
	grant->asked_ms = lock_clock_ms();
	code = zoo_exists(session->handle, path, 0, &stat);
	grant->fence = stat.czxid;
	return code == ZOK ? LOCK_REPLY_YES : failed(session, code);
}

static enum lock_reply session_take(void *opaque, const struct lock_request *request,
				    int64_t wait_ms, struct lock_grant *grant)
{
	struct zookeeper_lock_session *session = opaque;
	int64_t now_ms = clock_monotonic_ms(), lease_ms = request->lease_ms,
		connect_ms = wait_ms > 0 && wait_ms < CONNECT_TIMEOUT_MS ? wait_ms
									 : CONNECT_TIMEOUT_MS;
	enum lock_reply reply;
	char ulid[ULID_SIZE], *out = session->folder;
	struct ulid id;
	int code = ZNONODE;

	/* Connects a session with this timeout, unless the present one has it. */
	if (session->handle && (session->timeout_ms != lease_ms || is_expired(session)))
		handle_close(session);
	if (!session->handle) {
		session->timeout_ms = lease_ms;
		session->handle = zookeeper_init(session->hosts, on_session, (int)lease_ms, NULL,
						 session, 0);
	}
	if (!session->handle) {
		snprintf(session->why, sizeof(session->why), "%s: %s", session->hosts,
			 strerror(errno));
		return LOCK_REPLY_ERROR;
	}
	if (!flag_wait(session, &session->is_connected, clock_monotonic_ms() + connect_ms)) {
		snprintf(session->why, sizeof(session->why), "no connection to %s in time",
			 session->hosts);
		return LOCK_REPLY_DOWN;
	}
	if (zoo_recv_timeout(session->handle) < lease_ms) {
		snprintf(session->why, sizeof(session->why),
			 "its sessions last at most %d ms: ask for a shorter lease",
			 zoo_recv_timeout(session->handle));
		return LOCK_REPLY_ERROR;
	}

	/* The folder of the name: / and % become %XX; it never is . or .., by its first byte. */
	out += sprintf(out, "%s/=", ROOT);
	for (const char *p = request->name; *p; p++)
		out += *p == '/' || *p == '%' ? sprintf(out, "%%%02X", (unsigned)*p)
					      : sprintf(out, "%c", *p);
	ulid_new(&id, clock_wall_ms());
	snprintf(session->prefix, sizeof(session->prefix), "%c-%s-",
		 request->kind == LOCK_READ ? 'r' : 'w', ulid_format(&id, ulid));

	/*
	 * Makes the folder and the own node in it. After a lost connection either may have been
	 * made, and the servers remove a folder that is empty: both are asked for again.
	 */
	for (int i = 0; i < PLACE_ATTEMPTS && (code == ZNONODE || code == ZCONNECTIONLOSS); i++) {
		code = folder_make(session);
		if (code == ZOK)
			code = node_make(session);
	}
	if (code != ZOK) {
		handle_close(session);
		return failed(session, code);
	}
	reply = turn_wait(session, wait_ms < LOCK_WAIT_FOREVER - now_ms ? now_ms + wait_ms
									: LOCK_WAIT_FOREVER);
	if (reply == LOCK_REPLY_YES)
		reply = fence_read(session, grant);
	if (reply == LOCK_REPLY_NO)
		return node_remove(session) == LOCK_REPLY_DOWN ? LOCK_REPLY_DOWN : LOCK_REPLY_NO;
	if (reply != LOCK_REPLY_YES)
		handle_close(session); /* and with it the node */
	return reply;
}

static enum lock_reply session_renew(void *opaque)
{
	struct zookeeper_lock_session *session = opaque;
	struct lock_grant grant;
	enum lock_reply reply = is_expired(session) ? LOCK_REPLY_NO : fence_read(session, &grant);

	return reply == LOCK_REPLY_ERROR || is_expired(session) ? LOCK_REPLY_NO : reply;
}

static enum lock_reply session_release(void *opaque)
{
	struct zookeeper_lock_session *session = opaque;
	enum lock_reply reply = is_expired(session) ? LOCK_REPLY_NO : node_remove(session);

	if (reply == LOCK_REPLY_DOWN)
		handle_close(session);
	return is_expired(session) ? LOCK_REPLY_NO : reply;
}

static const char *session_why(const void *opaque)
{
	const struct zookeeper_lock_session *session = opaque;

	return session->why;
}

const struct lock_backend lock_zookeeper = {
	.name = "ZooKeeper",
	.open = session_open,
	.close = session_close,
	.take = session_take,
	.renew = session_renew,
	.release = session_release,
	.why = session_why,
};
