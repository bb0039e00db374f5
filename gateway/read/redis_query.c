#include "gateway/read/redis_query.h"

#include "common/message/id.h"
#include "common/message/number.h"
#include "common/redis/key.h"
#include "embed.h"

static void query_send(struct redis_link *link, int argc, const char **argv, redis_done_fn *done,
		       void *context)
{
	if (!link || redis_link_words(link, argc, argv, done, context))
		done(context, NULL);
}

void redis_query_user(struct redis_pool *pool, const struct redis_read *read, redis_done_fn *done,
		      void *context)
{
	struct redis_link *link = redis_pool_pick(pool);
	char keys[2][COUPON_KEY_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	const char *argv[] = { "EVAL",
			       lua_user_state,
			       "2",
			       coupon_key(read->coupon, COUPON_KEY_COUPON, keys[0]),
			       coupon_key(read->coupon, COUPON_KEY_USERS, keys[1]),
			       read->user->text,
			       link ? redis_link_run_id(link) : "",
			       number_text(read->seen_generation, generation),
			       number_text(read->seen_seq, seq) };

	query_send(link, 9, argv, done, context);
}

void redis_query_coupon(struct redis_pool *pool, const struct redis_read *read, redis_done_fn *done,
			void *context)
{
	struct redis_link *link = redis_pool_pick(pool);
	char key[COUPON_KEY_SIZE], generation[NUMBER_SIZE], seq[NUMBER_SIZE];
	const char *argv[] = { "EVAL",
			       lua_coupon_state,
			       "1",
			       coupon_key(read->coupon, COUPON_KEY_COUPON, key),
			       link ? redis_link_run_id(link) : "",
			       number_text(read->seen_generation, generation),
			       number_text(read->seen_seq, seq) };

	query_send(link, 7, argv, done, context);
}

void redis_query_changes(struct redis_pool *pool, redis_done_fn *done, void *context)
{
	const char *argv[] = { "HGETALL", CHANGES_KEY };

	query_send(redis_pool_pick(pool), 2, argv, done, context);
}

void redis_query_claim(struct redis_pool *pool, const char *installation, redis_done_fn *done,
		       void *context)
{
	const char *argv[] = { "EVAL", lua_changes, "1", CHANGES_KEY, installation, "none" };

	query_send(redis_pool_pick(pool), 6, argv, done, context);
}

void redis_query_config(struct redis_pool *pool, const char *setting, redis_done_fn *done,
			void *context)
{
	const char *argv[] = { "CONFIG", "GET", setting };

	query_send(redis_pool_pick(pool), 3, argv, done, context);
}
