#include "gateway/admit/outbox_removals.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/redis/key.h"

#include <stdlib.h>
#include <sys/queue.h>

struct removal {
	STAILQ_ENTRY(removal) next;
	int64_t coupon;
	struct ulid batch;
};

struct outbox_removals {
	STAILQ_HEAD(, removal) list;
	size_t n;
};

struct outbox_removals *outbox_removals_new(void)
{
	struct outbox_removals *removals = calloc(1, sizeof(*removals));

	check(removals != NULL);
	STAILQ_INIT(&removals->list);
	return removals;
}

void outbox_removals_free(struct outbox_removals *removals)
{
	outbox_removals_send(removals, NULL);
	free(removals);
}

void outbox_removals_add(struct outbox_removals *removals, int64_t coupon, const struct ulid *batch)
{
	struct removal *removal = malloc(sizeof(*removal));

	check(removal != NULL);
	removal->coupon = coupon;
	removal->batch = *batch;
	STAILQ_INSERT_TAIL(&removals->list, removal, next);
	removals->n++;
}

static void removal_done(void *context, const redisReply *reply)
{
	(void)context;
	if (reply && reply->type == REDIS_REPLY_ERROR)
		log_warn("outbox_remove", LOG_S("error", reply->str));
}

static void removal_send(const struct removal *removal, struct redis_link *link)
{
	char key[COUPON_KEY_SIZE], field[ULID_SIZE];
	const char *hdel[] = { "HDEL", coupon_key(removal->coupon, COUPON_KEY_OUTBOX, key),
			       ulid_format(&removal->batch, field) };

	redis_link_words(link, 3, hdel, removal_done, NULL);
}

void outbox_removals_send(struct outbox_removals *removals, struct redis_link *link)
{
	struct removal *removal;

	while ((removal = STAILQ_FIRST(&removals->list))) {
		if (link)
			removal_send(removal, link);
		STAILQ_REMOVE_HEAD(&removals->list, next);
		free(removal);
	}
	removals->n = 0;
}

size_t outbox_removals_n(const struct outbox_removals *removals)
{
	return removals->n;
}
