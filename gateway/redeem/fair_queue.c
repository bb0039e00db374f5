#include "gateway/redeem/fair_queue.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>

/* The requests of one connection. */
struct line {
	const struct responder *responder;
	UT_hash_handle hh;
	TAILQ_ENTRY(line) next;
	struct crowd *crowd;
	size_t n;
	struct request_list requests;
};

/* The connections of one address. */
struct crowd {
	uint64_t peer;
	UT_hash_handle hh;
	TAILQ_ENTRY(crowd) next;
	size_t n;
	TAILQ_HEAD(, line) lines; /* the one to be served next is first */
};

struct fair_queue {
	size_t n, max;
	struct crowd *by_peer;
	struct line *by_responder;
	TAILQ_HEAD(, crowd) crowds;
};

struct fair_queue *fair_queue_new(size_t max)
{
	struct fair_queue *queue = checked(calloc(1, sizeof(*queue)));

	queue->max = max;
	TAILQ_INIT(&queue->crowds);
	return queue;
}

static struct crowd *crowd_of(struct fair_queue *queue, uint64_t peer)
{
	struct crowd *crowd;

	HASH_FIND(hh, queue->by_peer, &peer, sizeof(peer), crowd);
	if (crowd)
		return crowd;
	crowd = checked(calloc(1, sizeof(*crowd)));
	crowd->peer = peer;
	TAILQ_INIT(&crowd->lines);
	HASH_ADD(hh, queue->by_peer, peer, sizeof(crowd->peer), crowd);
	TAILQ_INSERT_TAIL(&queue->crowds, crowd, next);
	return crowd;
}

static struct line *line_of(struct fair_queue *queue, const struct responder *responder)
{
	struct line *line;

	HASH_FIND_PTR(queue->by_responder, &responder, line);
	if (line)
		return line;
	line = checked(calloc(1, sizeof(*line)));
	line->responder = responder;
	line->crowd = crowd_of(queue, responder->peer);
	STAILQ_INIT(&line->requests);
	HASH_ADD_PTR(queue->by_responder, responder, line);
	TAILQ_INSERT_TAIL(&line->crowd->lines, line, next);
	return line;
}

/* Takes the oldest request of the line; the line and its crowd are then the last to be served. */
static struct request *line_take(struct fair_queue *queue, struct line *line)
{
	struct request *request = STAILQ_FIRST(&line->requests);
	struct crowd *crowd = line->crowd;

	STAILQ_REMOVE_HEAD(&line->requests, next);
	queue->n--;
	TAILQ_REMOVE(&crowd->lines, line, next);
	if (--line->n > 0) {
		TAILQ_INSERT_TAIL(&crowd->lines, line, next);
	} else {
		HASH_DEL(queue->by_responder, line);
		free(line);
	}
	TAILQ_REMOVE(&queue->crowds, crowd, next);
	if (--crowd->n > 0) {
		TAILQ_INSERT_TAIL(&queue->crowds, crowd, next);
	} else {
		HASH_DEL(queue->by_peer, crowd);
		free(crowd);
	}
	return request;
}

/* Begins with `crowd`, which mostly has more than half. */
static struct crowd *crowd_longest(const struct fair_queue *queue, struct crowd *crowd)
{
	struct crowd *other;

	if (crowd->n <= queue->n / 2)
		TAILQ_FOREACH (other, &queue->crowds, next)
			if (other->n > crowd->n)
				crowd = other;
	return crowd;
}

static struct line *line_longest(const struct crowd *crowd, struct line *line)
{
	struct line *longest = line->crowd == crowd ? line : TAILQ_FIRST(&crowd->lines), *other;

	if (longest->n <= crowd->n / 2)
		TAILQ_FOREACH (other, &crowd->lines, next)
			if (other->n > longest->n)
				longest = other;
	return longest;
}

struct request *fair_queue_add(struct fair_queue *queue, struct request *request)
{
	struct line *line = line_of(queue, request->responder);

	STAILQ_INSERT_TAIL(&line->requests, request, next);
	line->n++;
	line->crowd->n++;
	if (++queue->n <= queue->max)
		return NULL;
	return line_take(queue, line_longest(crowd_longest(queue, line->crowd), line));
}

struct request *fair_queue_take(struct fair_queue *queue)
{
	struct crowd *crowd = TAILQ_FIRST(&queue->crowds);

	return crowd ? line_take(queue, TAILQ_FIRST(&crowd->lines)) : NULL;
}

size_t fair_queue_count(const struct fair_queue *queue)
{
	return queue->n;
}
