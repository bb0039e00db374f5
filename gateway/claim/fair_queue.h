/*
 * Requests that wait, served in turn by address, and by connection within an address. Bounded: when
 * it is full, the connection that has most requests here, of the address that has most, loses one.
 */
#pragma once

#include "gateway/listen/request.h"

struct fair_queue;

struct fair_queue *fair_queue_new(size_t max); /* malloc */

/* Takes the request. Returns one that has no place, perhaps the same; NULL: all have one. */
struct request *fair_queue_add(struct fair_queue *queue, struct request *request);
/* Takes it, too. One that has no place is answered `busy`. */
void fair_queue_submit(struct fair_queue *queue, struct request *request);
struct request *fair_queue_take(struct fair_queue *queue); /* the next one, or NULL */
size_t fair_queue_count(const struct fair_queue *queue);
