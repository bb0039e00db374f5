#include "ctl/lost/receives.h"

#include "common/message/id.h"
#include "ctl/slots.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

#define SCAN_COUNT 256

enum { USERS, SLOTS, BATCHES, INDEXES, GENERATIONS, TIMES, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[USERS] = POSTGRES_TEXT,   [SLOTS] = POSTGRES_INT2,       [BATCHES] = POSTGRES_UUID,
	[INDEXES] = POSTGRES_INT2, [GENERATIONS] = POSTGRES_INT4, [TIMES] = POSTGRES_INT8,
};

static redisReply *member_read(struct lost_receives *lost, const char *command,
			       enum coupon_key which, const char *member)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(lost->coupon, which, key), member };
	redisReply *reply = redis_client_call(lost->redis, 3, argv);

	store_redis_check(lost->redis, reply != NULL);
	return reply;
}

static int is_member(struct lost_receives *lost, const char *command, enum coupon_key which,
		     const char *member)
{
	redisReply *reply = member_read(lost, command, which, member);
	int is = reply->integer == 1;

	freeReplyObject(reply);
	return is;
}

static int is_in_outbox(struct lost_receives *lost, const struct slot *slot)
{
	char batch[ULID_SIZE];

	return is_member(lost, "HEXISTS", COUPON_KEY_OUTBOX, ulid_format(&slot->batch, batch));
}

static int is_known(struct lost_receives *lost, const struct slot *slot)
{
	char batch[ULID_SIZE], member[ULID_SIZE + 8];

	snprintf(member, sizeof(member), "%s:%d", ulid_format(&slot->batch, batch), slot->index);
	return is_member(lost, "SISMEMBER", COUPON_KEY_KNOWN, member);
}

static void arrays_fill(struct lost_receives *lost, const struct slots *slots, int whole,
			struct postgres_array arrays[ARRAYS])
{
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];

		postgres_array_add_text(&arrays[USERS], slot->user.text, slot->user.len);
		postgres_array_add_number(&arrays[SLOTS], slot->number);
		postgres_array_add_uuid(&arrays[BATCHES], &slot->batch);
		postgres_array_add_number(&arrays[INDEXES], slot->index);
		if (!whole)
			continue;
		postgres_array_add_number(&arrays[GENERATIONS],
					  is_known(lost, slot)
						  ? lost_generations_take(lost->generations)
						  : lost->generations->current);
		postgres_array_add_number(&arrays[TIMES], ulid_time_ms(&slot->batch));
	}
}

/* Keeps the slots whose positions, from 1, PostgreSQL returned. */
static void slots_keep(struct slots *slots, const PGresult *ords)
{
	size_t n = 0;

	for (int row = 0; row < PQntuples(ords); row++)
		slots->list[n++] = slots->list[db_int(ords, row, "ord") - 1];
	slots->n = n;
}

static PGresult *slots_ask(struct lost_receives *lost, const char *sql, int params_n,
			   const struct slots *slots)
{
	static const int order[2][6] = { { USERS, SLOTS, BATCHES, INDEXES },
					 { GENERATIONS, BATCHES, INDEXES, USERS, SLOTS, TIMES } };
	struct postgres_array arrays[ARRAYS];
	struct postgres_argument arguments[7] = { postgres_number(lost->coupon) };
	int whole = params_n == 7;
	PGresult *result;

	arrays_fill(lost, slots, whole, arrays);
	for (int i = 1; i < params_n; i++)
		arguments[i] = postgres_array(&arrays[order[whole][i - 1]]);
	result = db_query_arguments(lost->db, sql, params_n, arguments);
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_fini(&arrays[i]);
	return result;
}

/* Keeps the receives without an outcome. */
static void slots_keep_open(struct lost_receives *lost, struct slots *slots)
{
	PGresult *ords = slots_ask(lost, sql_query_lost_candidates, 5, slots);

	slots_keep(slots, ords);
	PQclear(ords);
}

static void slots_drop_sent(struct lost_receives *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (!is_in_outbox(lost, &slots->list[i]))
			slots->list[n++] = slots->list[i];
	slots->n = n;
}

static void slots_drop_young(struct lost_receives *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (ulid_time_ms(&slots->list[i].batch) < lost->before_ms)
			slots->list[n++] = slots->list[i];
		else
			lost->young += is_known(lost, &slots->list[i]);
	slots->n = n;
}

static void slots_give_up(struct lost_receives *lost, struct slots *slots)
{
	PGresult *ords;

	slots_keep_open(lost, slots);
	slots_drop_sent(lost, slots);
	slots_drop_young(lost, slots);
	if (slots->n == 0)
		return;
	ords = slots_ask(lost, sql_query_receive_lost, 7, slots);
	slots_keep(slots, ords);
	PQclear(ords);
	for (size_t i = 0; i < slots->n; i++) {
		char text[RECEIVE_SIZE];

		printf("lost: receive %s, user %s, slot %d\n",
		       slot_receive_format(&slots->list[i], lost->coupon, text),
		       slots->list[i].user.text, slots->list[i].number);
	}
	lost->named += (int64_t)slots->n;
}

static void users_give_up(void *context, const redisReply *users)
{
	struct lost_receives *lost = context;
	struct slots slots = { 0 };
	struct user_id user;

	for (size_t i = 0; i + 1 < users->elements; i += 2) {
		const redisReply *id = users->element[i], *records = users->element[i + 1];

		/* Malformed records are left to the audit. */
		if (user_id_parse(&user, id->str, id->len) == 0)
			(void)slots_add_records(&slots, &user, records->str, records->len);
	}
	slots_sort(&slots);
	if (slots.n > 0)
		slots_give_up(lost, &slots);
	slots_fini(&slots);
}

/* Receives in the outbox will arrive. Messages that cannot be read will be dead-lettered. */
static void message_owe(void *context, const struct message *message)
{
	struct lost_receives *lost = context;
	struct older *older = lost_generations_find(lost->generations, message->generation);
	struct slots slots = { 0 };

	if (!older)
		return;
	for (size_t i = 0; i < message->receives_n; i++)
		slots_add(&slots, &(struct slot){ .user = message->receives[i].user,
						  .batch = message->batch,
						  .number = (int16_t)message->receives[i].slot,
						  .index = (int16_t)i });
	slots_keep_open(lost, &slots);
	older->owed += (int64_t)slots.n;
	slots_fini(&slots);
}

void lost_receives_owe(struct lost_receives *lost)
{
	outbox_scan(lost->redis, lost->coupon, message_owe, lost);
}

void lost_receives_give_up(struct lost_receives *lost)
{
	store_hash_scan(lost->redis, lost->coupon, COUPON_KEY_USERS, SCAN_COUNT, users_give_up,
			lost);
}
