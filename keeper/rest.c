#include "keeper/rest.h"

int keeper_rest_look(struct keeper_rest *rest, const struct keeper_lock *lock, int64_t now_ms)
{
	int64_t writes;

	if (redis_client_writes(lock->redis, &writes))
		return -1;
	if (now_ms >= rest->due_ms)
		rest->is_rest = 0;
	writes -= lock->writes;
	if (writes == rest->writes)
		return 0;
	rest->writes = writes;
	rest->is_quiet = 0;
	rest->is_rest = 0;
	return 0;
}

void keeper_rest_begin(struct keeper_rest *rest)
{
	rest->is_quiet = 1;
	rest->end_ms = INT64_MAX;
}

void keeper_rest_add(struct keeper_rest *rest, const struct coupon_row *row)
{
	if (row->status != COUPON_CLOSED && row->end_ms > 0 && row->end_ms < rest->end_ms)
		rest->end_ms = row->end_ms;
}

void keeper_rest_end(struct keeper_rest *rest, int has_work)
{
	rest->is_rest = rest->is_quiet && !has_work;
	rest->due_ms = rest->end_ms;
}
