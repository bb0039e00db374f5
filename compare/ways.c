#include "compare/ways.h"

#include <string.h>

extern const struct way way_read_then_write, way_row_lock, way_row_lock_function, way_version_once,
	way_version_time, way_version_times, way_conditional, way_conditional_unique,
	way_conditional_function, way_conditional_pipeline, way_lock_getset, way_lock_token,
	way_lock_ownerless, way_lock_redis, way_lock_redis_fair, way_lock_redis_one,
	way_lock_postgres, way_lock_zookeeper, way_user_lock, way_watch_once, way_watch_again,
	way_watch_pipelined, way_script, way_script_pipelined, way_segment, way_segments,
	way_segments_function, way_queue_commands, way_queue_script, way_queue_batches,
	way_queue_pipelined, way_couponmq_accepted, way_couponmq_issued, way_combiner, way_pieces,
	way_pieces_function, way_tokens;

const struct way *const ways[] = {
	&way_read_then_write,
	&way_row_lock,
	&way_row_lock_function,
	&way_version_once,
	&way_version_time,
	&way_version_times,
	&way_conditional,
	&way_conditional_unique,
	&way_conditional_function,
	&way_conditional_pipeline,
	&way_lock_getset,
	&way_lock_token,
	&way_lock_ownerless,
	&way_lock_redis,
	&way_lock_redis_fair,
	&way_lock_redis_one,
	&way_lock_postgres,
#ifdef WITH_ZOOKEEPER
	&way_lock_zookeeper,
#endif
	&way_user_lock,
	&way_watch_once,
	&way_watch_again,
	&way_watch_pipelined,
	&way_script,
	&way_script_pipelined,
	&way_segment,
	&way_segments,
	&way_segments_function,
	&way_queue_commands,
	&way_queue_script,
	&way_queue_batches,
	&way_queue_pipelined,
	&way_couponmq_accepted,
	&way_couponmq_issued,
	&way_combiner,
	&way_pieces,
	&way_pieces_function,
	&way_tokens,
	NULL,
};

const struct way *ways_find(const char *id)
{
	for (int i = 0; ways[i]; i++)
		if (strcmp(ways[i]->id, id) == 0)
			return ways[i];
	return NULL;
}
