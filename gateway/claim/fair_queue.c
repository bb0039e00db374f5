#include "gateway/claim/fair_queue.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>

/* Identifies a group: the group that it is part of, and its key there. */
struct fair_place {
	const void *parent;
	uint64_t key; /* an address, or a connection of it */
};

/*
 * A tree of three levels: all requests, those of an address, and those of one of its connections,
 * which has them.
 */
struct fair_group {
	struct fair_place place;
	UT_hash_handle hh;
	struct fair_group *parent; /* NULL: of all requests */
	TAILQ_ENTRY(fair_group) next;
	size_t n;                                     /* requests */
	TAILQ_HEAD(fair_group_list, fair_group) list; /* the one to be served next is first */
	struct request_list requests;
};

struct fair_queue {
	size_t max;
	struct fair_group all;
	struct fair_group *by_place; /* the others */
};

struct fair_queue *fair_queue_new(size_t max)
{
	struct fair_queue *queue = checked(calloc(1, sizeof(*queue)));

	queue->max = max;
	TAILQ_INIT(&queue->all.list);
	return queue;
}

static struct fair_group *group_of(struct fair_queue *queue, struct fair_group *parent,
				   uint64_t key)
{
	const struct fair_place place = { parent, key };
	struct fair_group *group;

	HASH_FIND(hh, queue->by_place, &place, sizeof(place), group);
	if (group)
		return group;
	group = checked(calloc(1, sizeof(*group)));
	group->place = place;
	group->parent = parent;
	TAILQ_INIT(&group->list);
	STAILQ_INIT(&group->requests);
	HASH_ADD(hh, queue->by_place, place, sizeof(place), group);
	TAILQ_INSERT_TAIL(&parent->list, group, next);
	return group;
}

/* Takes its oldest request; the connection and its address are then the last to be served. */
static struct request *line_take(struct fair_queue *queue, struct fair_group *line)
{
	struct request *request = STAILQ_FIRST(&line->requests);

	STAILQ_REMOVE_HEAD(&line->requests, next);
	for (struct fair_group *group = line, *parent; (parent = group->parent); group = parent) {
		TAILQ_REMOVE(&parent->list, group, next);
		if (--group->n > 0) {
			TAILQ_INSERT_TAIL(&parent->list, group, next);
			continue;
		}
		HASH_DEL(queue->by_place, group);
		free(group);
	}
	queue->all.n--;
	return request;
}

/* The longest group of the parent. Begins with `group`, which mostly has more than half. */
static struct fair_group *longest(const struct fair_group *parent, struct fair_group *group)
{
	struct fair_group *other;

	if (group->n <= parent->n / 2)
		TAILQ_FOREACH (other, &parent->list, next)
			if (other->n > group->n)
				group = other;
	return group;
}

struct request *fair_queue_add(struct fair_queue *queue, struct request *request)
{
	struct fair_group *address = group_of(queue, &queue->all, request->responder->peer);
	struct fair_group *line = group_of(queue, address, (uintptr_t)request->responder), *most;

	STAILQ_INSERT_TAIL(&line->requests, request, next);
	line->n++;
	address->n++;
	if (++queue->all.n <= queue->max)
		return NULL;
	most = longest(&queue->all, address);
	return line_take(queue, longest(most, most == address ? line : TAILQ_FIRST(&most->list)));
}

void fair_queue_submit(struct fair_queue *queue, struct request *request)
{
	request = fair_queue_add(queue, request);
	if (request)
		request_fail(request, ANSWER_BUSY, NULL);
}

struct request *fair_queue_take(struct fair_queue *queue)
{
	struct fair_group *address = TAILQ_FIRST(&queue->all.list);

	return address ? line_take(queue, TAILQ_FIRST(&address->list)) : NULL;
}

size_t fair_queue_count(const struct fair_queue *queue)
{
	return queue->all.n;
}
