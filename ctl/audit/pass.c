#include "ctl/audit/pass.h"

#include "common/check.h"
#include "common/message/message.h"
#include "ctl/audit/context.h"
#include "ctl/audit/postgres.h"
#include "ctl/audit/redis.h"
#include "coupon/slot.h"
#include "ctl/store.h"

#include <stdlib.h>
#include <string.h>

#define OUTBOX_ENTRIES_MAX 1000 /* of each kind that are kept */

void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how)
{
	if (suspects->n == suspects->size) {
		suspects->size = suspects->size ? suspects->size * 2 : 256;
		suspects->list = realloc(suspects->list, suspects->size * sizeof(*suspects->list));
		check(suspects->list != NULL);
	}
	suspects->list[suspects->n++] = (struct suspect){ .slot = *slot, .how = how };
}

static void suspects_fini(struct suspects *suspects)
{
	free(suspects->list);
	memset(suspects, 0, sizeof(*suspects));
}

void suspects_restart(struct suspects *suspects)
{
	for (size_t i = 0; i < suspects->n; i++)
		suspects->list[i].looks = 0;
}

void suspects_drop_gone(struct suspects *suspects)
{
	size_t kept = 0;

	for (size_t i = 0; i < suspects->n; i++)
		if (suspects->list[i].state != SUSPECT_GONE)
			suspects->list[kept++] = suspects->list[i];
	suspects->n = kept;
}

size_t suspects_slots(const struct suspects *suspects, size_t at, size_t most, struct slot *slots)
{
	size_t n = suspects->n - at < most ? suspects->n - at : most;

	for (size_t i = 0; i < n; i++)
		slots[i] = suspects->list[at + i].slot;
	return n;
}

int64_t suspects_count(const struct suspects *suspects, enum suspect_state state)
{
	int64_t n = 0;

	for (size_t i = 0; i < suspects->n; i++)
		n += suspects->list[i].state == state;
	return n;
}

int suspects_have(const struct suspects *suspects, const struct slot *slot)
{
	for (size_t i = 0; i < suspects->n; i++)
		if (slot_compare(&suspects->list[i].slot, slot) == 0)
			return 1;
	return 0;
}

struct reading {
	struct outbox *outbox;
	struct audit *audit;
	const struct suspects *open;
	int64_t coupon, before_ms;
};

/* A scan may return an entry twice. */
static void bad_add(struct outbox *outbox, const redisReply *batch, const char *error)
{
	struct outbox_bad bad = { .error = error };

	snprintf(bad.batch, sizeof(bad.batch), "%s", batch->str);
	for (size_t i = 0; i < outbox->bad_n; i++)
		if (strcmp(outbox->bad[i].batch, bad.batch) == 0)
			return;
	if (!outbox->bad)
		outbox->bad = calloc(OUTBOX_ENTRIES_MAX, sizeof(*outbox->bad));
	check(outbox->bad != NULL);
	if (outbox->bad_n < OUTBOX_ENTRIES_MAX)
		outbox->bad[outbox->bad_n++] = bad;
}

static void settled_add(struct outbox *outbox, const struct slot *first)
{
	for (size_t i = 0; i < outbox->settled.n; i++)
		if (slot_same_receive(&outbox->settled.list[i].slot, first))
			return;
	suspects_add(&outbox->settled, first, SLOT_SAME);
}

static int batch_compare(const void *key, const void *element)
{
	const struct suspect *suspect = element;

	return memcmp(key, &suspect->slot.batch, sizeof(suspect->slot.batch));
}

/* Most messages are in flight, and PostgreSQL need not be asked about them. */
static int is_open(const struct reading *reading, const struct message *message)
{
	const struct suspects *open = reading->open;

	return open->n > 0 && bsearch(&message->batch, open->list, open->n, sizeof(*open->list),
				      batch_compare) != NULL;
}

/* Whether all receives of a message have an outcome. `*first` is its first receive. */
static int is_settled(const struct reading *reading, const struct message *message,
		      struct slot *first)
{
	static struct outcome outcomes[MESSAGE_RECEIVES_MAX];
	static struct slot slots[MESSAGE_RECEIVES_MAX];

	for (size_t i = 0; i < message->receives_n; i++)
		slots[i] = (struct slot){
			.user = message->receives[i].user,
			.batch = message->batch,
			.number = (int16_t)message->receives[i].slot,
			.index = (int16_t)i,
		};
	audit_outcomes_read(reading->audit->db, reading->coupon, slots, message->receives_n,
			    outcomes);
	for (size_t i = 0; i < message->receives_n; i++)
		if (outcomes[i].issued_ms < 0 && outcomes[i].rejected_ms < 0)
			return 0;
	*first = slots[0];
	return 1;
}

static int entry_take(void *context, const redisReply *batch, const struct message *message,
		      const char *error)
{
	const struct reading *reading = context;
	struct outbox *outbox = reading->outbox;
	struct slot first;

	if (error)
		bad_add(outbox, batch, error);
	else if (message->at_ms < reading->before_ms && outbox->settled.n < OUTBOX_ENTRIES_MAX &&
		 !is_open(reading, message) && is_settled(reading, message, &first))
		settled_add(outbox, &first);
	return 0;
}

void outbox_read(struct outbox *outbox, struct audit *audit, int64_t coupon,
		 const struct suspects *open, int64_t before_ms)
{
	struct reading reading = {
		.outbox = outbox,
		.audit = audit,
		.open = open,
		.coupon = coupon,
		.before_ms = before_ms,
	};

	store_redis_check(audit->redis,
			  outbox_scan(audit->redis, coupon, entry_take, &reading) == 0);
}

static void outbox_fini(struct outbox *outbox)
{
	free(outbox->bad);
	suspects_fini(&outbox->settled);
}

static int batch_has(struct redis_client *redis, const char *command, const char *key,
		     const struct ulid *batch)
{
	char text[ULID_SIZE];
	redisReply *reply = redis_client_call(redis, 3,
					      (const char *[]){ command, key,
								ulid_format(batch, text) });
	int has;

	store_redis_check(redis, reply != NULL);
	has = reply->integer == 1;
	freeReplyObject(reply);
	return has;
}

static void batches_find(struct redis_client *redis, const char *command, const char *key,
			 const struct slot *slots, size_t n, int *has)
{
	for (size_t i = 0; i < n; i++) {
		int same = i > 0 && memcmp(&slots[i].batch, &slots[i - 1].batch,
					   sizeof(slots[i].batch)) == 0;

		has[i] = same ? has[i - 1] : batch_has(redis, command, key, &slots[i].batch);
	}
}

void outbox_has(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		int *has)
{
	char key[COUPON_KEY_SIZE];

	batches_find(redis, "HEXISTS", coupon_key(coupon, COUPON_KEY_OUTBOX, key), slots, n, has);
}

void outbox_dead(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		 int *dead)
{
	char key[COUPON_KEY_SIZE];

	batches_find(redis, "SISMEMBER", coupon_key(coupon, COUPON_KEY_DEAD, key), slots, n, dead);
}

#define SET_MAX (8 * 1000 * 1000) /* 128 MB at most; what does not fit is looked up one by one */

void pass_init(struct pass *pass, struct audit *audit, int64_t coupon)
{
	memset(pass, 0, sizeof(*pass));
	pass->audit = audit;
	pass->coupon = coupon;
	slot_set_init(&pass->set, SET_MAX);
	slot_set_init(&pass->receives, SET_MAX);
}

void pass_fini(struct pass *pass)
{
	generations_fini(&pass->generations);
	PQclear(pass->twice);
	slot_set_fini(&pass->set);
	slot_set_fini(&pass->receives);
	slots_fini(&pass->malformed);
	slots_fini(&pass->beyond);
	suspects_fini(&pass->rows);
	suspects_fini(&pass->open);
	outbox_fini(&pass->outbox);
}

int64_t pass_gone(const struct pass *pass)
{
	int64_t rows = pass->row.issued - pass->rows_n;
	int64_t outcomes = pass->row.generation > 1
				   ? 0
				   : pass->row.settled_sum - pass->rows_n - pass->row.rejected;

	return rows > outcomes ? rows : outcomes;
}

int pass_counts_users(const struct pass *pass)
{
	return pass->row.limit == 1 && pass->cut.coupon.limit == 1 && pass->several_n == 0;
}

int64_t pass_outcomes_over(const struct pass *pass)
{
	return pass->rows_n + pass->row.rejected - pass->row.settled_sum;
}

int64_t pass_in_flight(const struct pass *pass)
{
	return generations_unsettled(&pass->generations, 0);
}

enum sum_verdict pass_sum(const struct pass *pass)
{
	const struct redis_coupon *a = &pass->cut.coupon, *b = &pass->after.coupon;
	int64_t freed = b->stock + b->seq - a->stock - a->seq + b->lost - a->lost;
	int64_t over = cut_taken(&pass->cut) - pass->counted;
	int64_t most = (int64_t)(pass->open.n + pass->rows.n) + pass->doubtful +
		       (int64_t)pass->malformed.n * pass->row.limit;

	if (!pass->compared)
		return SUM_RIGHT;
	if (pass_counts_users(pass))
		return SUM_AT_CUT;
	if (!pass->after.present || pass->after.bad || a->generation != b->generation ||
	    a->version != b->version || a->reserved != b->reserved || a->late != b->late ||
	    freed < 0)
		return SUM_UNSURE;
	if (over >= 0 && over <= most + freed)
		return SUM_RIGHT;
	/* A time of acceptance may be wrong once, when a clock jumped. */
	return freed == 0 && a->seq == b->seq && pass->by_time == 0 && pass->open.n == 0
		       ? SUM_WRONG
		       : SUM_SUSPECT;
}
