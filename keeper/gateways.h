/*
 * Which gateway processes there are, and whether all of them have reported to the running Redis
 * what they have seen: then coupons may be opened on it at once. The keeper's thread.
 *
 * Known are those with a row in PostgreSQL (sql/function/gateway_alive.sql), and those whose mark
 * in Redis (couponmq:gateways: the process to which it has reported) this worker has ever read: one
 * that started while PostgreSQL was away has no row, and an emptied Redis has no marks. A gateway
 * issues nothing before it has its row, or has had its mark for 3 s. So one is unknown only if this
 * worker did not read the marks in the last seconds of the Redis before: then, and while a gateway
 * that is known is missing, coupons are opened when the time for reports is over.
 */
#ifndef KEEPER_GATEWAYS_H
#define KEEPER_GATEWAYS_H

#include "keeper/context.h"

#include "common/hash.h"

struct keeper_gateway;

struct keeper_gateways {
	struct keeper_gateway *known; /* by id */
	int64_t read_ms;              /* when the marks were last read */
	int64_t lost_ms;              /* when Redis was first missed since; 0: it was not */
	int is_complete; /* none is unknown that has seen anything of the process before */
	int64_t full_ms; /* there were too many to remember them all; 0: never */
	int64_t tidy_ms; /* the next tidying */
};

/* Redis cannot be reached. */
void keeper_gateways_lost(struct keeper_gateways *gateways);
/* Reads the process of Redis and the marks: in each turn of every worker. 0, or -1. */
int keeper_gateways_read(struct keeper_gateways *gateways, struct keeper_context *context);
/*
 * In each round of the elected keeper, after keeper_gateways_read(): sets `may_open` of the
 * context. 0, or -1: Redis or PostgreSQL failed.
 */
int keeper_gateways_round(struct keeper_gateways *gateways, struct keeper_context *context);
void keeper_gateways_fini(struct keeper_gateways *gateways);

#endif
