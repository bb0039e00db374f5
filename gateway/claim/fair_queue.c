#include "gateway/claim/fair_queue.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>

/* Identifies a crowd: the crowd that it is part of, and its key there. */
struct place {
	const void *parent;
	uint64_t key; /* an address, or a connection of it */
};

/*
 * A tree of three levels: all requests, those of an address, and those of one of its connections,
 * which has them.
 */
struct crowd {
	struct place place;
	UT_hash_handle hh;
	struct crowd *parent; /* NULL: of all requests */
	TAILQ_ENTRY(crowd) next;
	size_t n;                           /* requests */
	TAILQ_HEAD(crowd_list, crowd) list; /* the one to be served next is first */
	struct request_list requests;
};

struct fair_queue {
	size_t max;
	struct crowd all;
	struct crowd *by_place; /* the others */
};

struct fair_queue *fair_queue_new(size_t max)
{
	struct fair_queue *queue = checked(calloc(1, sizeof(*queue)));

	queue->max = max;
	TAILQ_INIT(&queue->all.list);
	return queue;
}

static struct crowd *crowd_of(struct fair_queue *queue, struct crowd *parent, uint64_t key)
{
	const struct place place = { parent, key };
	struct crowd *crowd;

	HASH_FIND(hh, queue->by_place, &place, sizeof(place), crowd);
	if (crowd)
		return crowd;
	crowd = checked(calloc(1, sizeof(*crowd)));
	crowd->place = place;
	crowd->parent = parent;
	TAILQ_INIT(&crowd->list);
	STAILQ_INIT(&crowd->requests);
	HASH_ADD(hh, queue->by_place, place, sizeof(place), crowd);
	TAILQ_INSERT_TAIL(&parent->list, crowd, next);
	return crowd;
}

/* Takes its oldest request; the connection and its address are then the last to be served. */
static struct request *line_take(struct fair_queue *queue, struct crowd *line)
{
	struct request *request = STAILQ_FIRST(&line->requests);

	STAILQ_REMOVE_HEAD(&line->requests, next);
	for (struct crowd *crowd = line, *parent; (parent = crowd->parent); crowd = parent) {
		TAILQ_REMOVE(&parent->list, crowd, next);
		if (--crowd->n > 0) {
			TAILQ_INSERT_TAIL(&parent->list, crowd, next);
			continue;
		}
		HASH_DEL(queue->by_place, crowd);
		free(crowd);
	}
	queue->all.n--;
	return request;
}

/* The longest crowd of the parent. Begins with `crowd`, which mostly has more than half. */
static struct crowd *longest(const struct crowd *parent, struct crowd *crowd)
{
	struct crowd *other;

	if (crowd->n <= parent->n / 2)
		TAILQ_FOREACH (other, &parent->list, next)
			if (other->n > crowd->n)
				crowd = other;
	return crowd;
}

struct request *fair_queue_add(struct fair_queue *queue, struct request *request)
{
	struct crowd *address = crowd_of(queue, &queue->all, request->responder->peer);
	struct crowd *line = crowd_of(queue, address, (uintptr_t)request->responder), *most;

	STAILQ_INSERT_TAIL(&line->requests, request, next);
	line->n++;
	address->n++;
	if (++queue->all.n <= queue->max)
		return NULL;
	most = longest(&queue->all, address);
	return line_take(queue, longest(most, most == address ? line : TAILQ_FIRST(&most->list)));
}

struct request *fair_queue_take(struct fair_queue *queue)
{
	struct crowd *address = TAILQ_FIRST(&queue->all.list);

	return address ? line_take(queue, TAILQ_FIRST(&address->list)) : NULL;
}

size_t fair_queue_count(const struct fair_queue *queue)
{
	return queue->all.n;
}
