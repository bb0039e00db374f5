/*
 * Locks in PostgreSQL: advisory locks of a session, whose waiters queue in the order of asking, so
 * exclusive, fair and write are one kind here. The key of a lock has 32 bits of its name's hash:
 * with a chance of one in four billion two names share a lock, and wait for each other without
 * need.
 *
 * The lease is the session's idle_session_timeout: the server ends a session that asks nothing for
 * so long, and its lock with it. A renewal is any statement.
 */
#include "lock/backend.h"

#include "common/check.h"
#include "common/postgres/postgres_session.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 5000
#define REPLY_TIMEOUT_MS 5000 /* of what does not wait for a lock */

struct postgres_lock_session {
	struct postgres *postgres;
	char name[LOCK_NAME_MAX + 1];
	const char *kind;
};

static void *session_open(const char *url)
{
	struct postgres_lock_session *session = checked(calloc(1, sizeof(*session)));

	session->postgres = postgres_new(
		&(struct postgres_options){ .url = url,
					    .application_name = "couponmq-lock",
					    .connect_timeout_ms = CONNECT_TIMEOUT_MS });
	return session;
}

static void session_close(void *opaque)
{
	struct postgres_lock_session *session = opaque;

	postgres_free(session->postgres);
	free(session);
}

/*
 * One statement; its first column is a truth value or a number: *value, if it is not NULL. Without
 * a time-out it lasts as long as the connection.
 */
static enum lock_reply run(struct postgres_lock_session *session, const char *sql,
			   const char *first, const char *second, int64_t timeout_ms,
			   int64_t *value)
{
	const struct postgres_argument arguments[] = { postgres_text(first),
						       postgres_text(second) };
	const struct postgres_patience patience = { .timeout_ms = timeout_ms };
	PGresult *result;

	if (!postgres_up(session->postgres))
		return LOCK_REPLY_DOWN;
	result = postgres_query(session->postgres, sql, second ? 2 : 0, arguments, &patience);
	if (!result) {
		switch (postgres_failure(session->postgres)) {
		case POSTGRES_OK:
			return LOCK_REPLY_YES;
		case POSTGRES_BLOCKED:
			return LOCK_REPLY_NO;
		case POSTGRES_DOWN:
			return LOCK_REPLY_DOWN;
		case POSTGRES_CANCELLED:
		case POSTGRES_REFUSED:
		case POSTGRES_AGAIN:
		case POSTGRES_UNFIT:
			return LOCK_REPLY_ERROR;
		}
		return LOCK_REPLY_ERROR;
	}
	if (value)
		*value = strcmp(PQgetvalue(result, 0, 0), "t") == 0
				 ? 1
				 : strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return LOCK_REPLY_YES;
}

/* Runs a statement about the session's lock that returns a truth value: NO when it is false. */
static enum lock_reply ask(struct postgres_lock_session *session, const char *sql)
{
	int64_t is_true = 0;
	enum lock_reply reply = run(session, sql, session->name, session->kind, REPLY_TIMEOUT_MS,
				    &is_true);

	return reply == LOCK_REPLY_YES && !is_true ? LOCK_REPLY_NO : reply;
}

static enum lock_reply session_release(void *opaque)
{
	return ask(opaque, sql_query_lock_release);
}

static enum lock_reply session_take(void *opaque, const struct lock_request *request,
				    int64_t wait_ms, struct lock_grant *grant)
{
	struct postgres_lock_session *session = opaque;
	char lease[NUMBER_SIZE], wait[NUMBER_SIZE];
	int attempts = postgres_up(session->postgres) ? 2 : 1;
	enum lock_reply reply = LOCK_REPLY_DOWN;

	snprintf(session->name, sizeof(session->name), "%s", request->name);
	session->kind = request->kind == LOCK_READ ? "read" : "write";

	/*
	 * Tells the server the lease and the wait. A session that it has ended since its last lock,
	 * which had another lease, is replaced.
	 */
	number_text(request->lease_ms, lease);
	number_text(wait_ms > INT32_MAX ? 0 : wait_ms, wait);
	while (reply == LOCK_REPLY_DOWN && attempts-- > 0)
		if (postgres_open(session->postgres) == 0)
			reply = run(session, sql_query_lock_session, lease, wait, REPLY_TIMEOUT_MS,
				    NULL);

	if (reply == LOCK_REPLY_YES)
		reply = wait_ms > 0 ? run(session, sql_query_lock_wait, session->name,
					  session->kind, 0, NULL)
				    : ask(session, sql_query_lock_try);
	if (reply != LOCK_REPLY_YES)
		return reply;
	grant->asked_ms = lock_clock_ms();
	reply = run(session, sql_query_lock_fence, NULL, NULL, REPLY_TIMEOUT_MS, &grant->fence);
	if (reply != LOCK_REPLY_YES)
		session_release(session);
	return reply;
}

/* Without its session the lock is lost. */
static enum lock_reply session_renew(void *opaque)
{
	enum lock_reply reply = run(opaque, "SELECT 1", NULL, NULL, REPLY_TIMEOUT_MS, NULL);

	return reply == LOCK_REPLY_DOWN ? LOCK_REPLY_NO : reply;
}

static const char *session_why(const void *opaque)
{
	const struct postgres_lock_session *session = opaque;

	return postgres_why(session->postgres);
}

const struct lock_backend lock_postgres = {
	.name = "PostgreSQL",
	.open = session_open,
	.close = session_close,
	.take = session_take,
	.renew = session_renew,
	.release = session_release,
	.why = session_why,
};
