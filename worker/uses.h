/*
 * Executes the uses of receives that the worker holds, as the settler settles receives: what its
 * transactions do.
 *
 *	use() ──COMMIT──▶ Redis has the records and the number ──▶ reply, ack
 *
 * A use is answered, and its message acked, when both PostgreSQL and Redis have what it has
 * changed: either of them may be lost. Until then RabbitMQ has the message, and a copy of it
 * changes nothing. The calls to Redis block, each for at most REDIS_CLIENT_TIMEOUT_MS; while Redis
 * cannot be reached, the transaction stays as it is, and no other begins.
 *
 * The thread of uses.
 */
#pragma once

#include "common/program/config.h"
#include "worker/settler.h"

struct uses;

extern const struct settler_kind settler_of_uses;

struct uses *uses_new(const struct config *config); /* does not connect */
void uses_free(struct uses *uses);
