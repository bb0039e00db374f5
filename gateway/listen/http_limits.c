#include "gateway/listen/http_limits.h"

#include "common/clock.h"
#include "gateway/metrics.h"

#define WAIT_MS 60000 /* for one request to arrive, between two, and for one reply */
#define RESERVE 16    /* connections beyond the limit, for monitoring */
#define RESERVE_MS 5000
#define SMALL_BYTES 4096 /* a request of this size is taken whatever the others have sent */

void http_limits_init(struct http_limits *limits, const struct config *config,
		      struct intake *intake)
{
	*limits = (struct http_limits){ .config = config, .intake = intake };
	TAILQ_INIT(&limits->counted);
	TAILQ_INIT(&limits->reserve);
}

enum intake_room http_limits_enter(struct http_limits *limits, struct http_member *member, int fd)
{
	member->room = intake_connection_open(limits->intake, &member->client, fd);
	limits->reserve_n += (size_t)(member->room == INTAKE_FULL);
	limits->n++;
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)limits->n);
	return member->room == INTAKE_FULL && limits->reserve_n <= RESERVE ? INTAKE_ROOM
									   : member->room;
}

void http_limits_leave(struct http_limits *limits, struct http_member *member)
{
	limits->n--;
	if (member->room == INTAKE_ROOM)
		intake_connection_close(limits->intake, &member->client);
	limits->reserve_n -= (size_t)(member->room == INTAKE_FULL);
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)limits->n);
}

static struct http_member_queue *queue_of(struct http_limits *limits,
					  const struct http_member *member)
{
	return member->room == INTAKE_ROOM ? &limits->counted : &limits->reserve;
}

void http_limits_wait(struct http_limits *limits, struct http_member *member)
{
	int64_t idle_ms = limits->config->idle_timeout_ms;
	int64_t most_ms = member->room == INTAKE_ROOM ? WAIT_MS : RESERVE_MS;

	member->until_ms = clock_monotonic_ms() + (idle_ms < most_ms ? idle_ms : most_ms);
	TAILQ_INSERT_TAIL(queue_of(limits, member), member, next);
}

void http_limits_wait_end(struct http_limits *limits, struct http_member *member)
{
	TAILQ_REMOVE(queue_of(limits, member), member, next);
}

static struct http_connection *first_expired(const struct http_member_queue *queue, int64_t now_ms)
{
	const struct http_member *member = TAILQ_FIRST(queue);

	return member && member->until_ms <= now_ms ? member->connection : NULL;
}

struct http_connection *http_limits_expired(struct http_limits *limits, int64_t now_ms)
{
	struct http_connection *counted = first_expired(&limits->counted, now_ms);

	return counted ? counted : first_expired(&limits->reserve, now_ms);
}

struct http_connection *http_limits_waiting(struct http_limits *limits)
{
	return http_limits_expired(limits, INT64_MAX);
}

void http_limits_received(struct http_limits *limits, struct http_member *member, size_t received)
{
	limits->received += received - member->received;
	member->received = received;
}

int http_limits_too_large(const struct http_limits *limits, const struct http_member *member)
{
	return limits->received > (size_t)limits->config->http_buffer_bytes &&
	       member->received > SMALL_BYTES;
}

size_t http_limits_room(const struct http_limits *limits, size_t most)
{
	return limits->received > (size_t)limits->config->http_buffer_bytes && most > SMALL_BYTES
		       ? SMALL_BYTES
		       : most;
}
