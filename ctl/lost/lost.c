/*
 *	Redis ──users, in steps──▶ old enough, not in the outbox ──PostgreSQL──▶ without an outcome:
 *	                                                                         given up by name
 *
 * Then the receives of older generations that no slot names are given up by number. Each step is a
 * statement of its own and may be repeated.
 *
 * Neither a slot nor the set of known receives has the generation of a receive. One that is not
 * known is of the generation in Redis. One that is known is counted in the oldest generation that
 * has numbers left, without those of receives that can still arrive: the generations of receives in
 * the outbox are in their messages, and younger receives are of the latest generations.
 */
#include "ctl/lost/lost.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/lost/receives.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"

#include <stdio.h>
#include <time.h>

#define OLDER_S 60
#define OLDER_MAX_S 31536000

static void queues_need_empty(const char *url)
{
	struct broker *broker = broker_new(url);
	struct broker_look look;

	broker_look(broker, &look);
	if (!look.ok)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be queried: %s",
			  broker_error(broker));
	if (look.ready > 0 || look.dead > 0)
		log_fatal("the receive queue holds %lld messages and the dead-letter queue %lld: "
			  "these messages can still arrive",
			  (long long)look.ready, (long long)look.dead);
	broker_free(broker);
}

/* Where a lock or a time-out stops settling, workers hold receives that no queue shows. */
static void workers_need_hold_none(struct db *db)
{
	struct timespec pause = { .tv_sec = 0, .tv_nsec = 200000000 };
	struct locks locks = { .n = 0 };

	locks_look(&locks, db, clock_monotonic_ms());
	for (int i = 0; i < 6 && locks.n > 0; i++) {
		nanosleep(&pause, NULL);
		if (locks_look(&locks, db, clock_monotonic_ms()) > 0)
			log_fatal("another session has a transaction open that holds locks on "
				  "coupons or receives: receives that wait for it can still be "
				  "settled");
	}
	if (locks_workers_hold(db))
		log_fatal("a worker has put off receives that it could not settle yet, or is in "
			  "a long transaction: these receives can still be settled");
}

void lost_release(struct ctl *ctl, struct db *db)
{
	int64_t older_s = args_number(&ctl->args, "older-than-s", 0, OLDER_MAX_S, OLDER_S);
	struct lost_generations generations;
	struct lost_receives receives = { .db = db,
					  .coupon = args_coupon(&ctl->args),
					  .before_ms = clock_wall_ms() - older_s * 1000,
					  .generations = &generations };

	queues_need_empty(ctl->config.amqp_url);
	workers_need_hold_none(db);
	receives.redis = store_redis_open(ctl);
	lost_generations_read(&generations, db, receives.redis, receives.coupon);
	lost_receives_owe(&receives);
	lost_receives_give_up(&receives);
	lost_generations_owe(&generations, receives.young);
	lost_generations_give_up(&generations, db);
	printf("coupon %lld: %lld receives given up by name\n", (long long)receives.coupon,
	       (long long)receives.named);
	lost_generations_fini(&generations);
	redis_client_free(receives.redis);
}
