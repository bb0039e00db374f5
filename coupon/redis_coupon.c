#include "coupon/redis_coupon.h"

#include "common/array.h"
#include "common/check.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "embed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8
#define OUTBOX_COUNT 16 /* entries of a step; each may be 70 KB */

redisReply *coupon_call(struct redis_client *redis, int64_t coupon, const char *command,
			enum coupon_key which, ...)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[WORDS_MAX + 1] = { command, coupon_key(coupon, which, key) };
	int argc = 2;
	va_list words;

	va_start(words, which);
	while (argc <= WORDS_MAX && (argv[argc] = va_arg(words, const char *)))
		argc++;
	va_end(words);
	check(argc <= WORDS_MAX);
	return redis_client_call(redis, argc, argv);
}

/* The fields that are numbers. */
static const struct field {
	const char *name;
	size_t offset; /* in struct redis_coupon */
	int64_t least, most;
	int is_optional;
} fields[] = {
#define FIELD(name_, member, least_, most_, is_optional_)                                        \
	{                                                                                        \
		.name = name_, .offset = offsetof(struct redis_coupon, member), .least = least_, \
		.most = most_, .is_optional = is_optional_                                       \
	}
	FIELD("total", total, 0, JSON_INTEGER_MAX, 0),
	FIELD("stock", stock, 0, JSON_INTEGER_MAX, 0),
	FIELD("reserved", reserved, 0, JSON_INTEGER_MAX, 0),
	FIELD("begin", begin_ms, 0, JSON_INTEGER_MAX, 0),
	FIELD("end", end_ms, 0, JSON_INTEGER_MAX, 0),
	FIELD("limit", limit, 1, RECEIVE_SLOT_MAX, 0),
	FIELD("generation", generation, 1, JSON_INTEGER_MAX, 0),
	FIELD("seq", seq, 0, JSON_INTEGER_MAX, 0),
	FIELD("version", version, 1, JSON_INTEGER_MAX, 0),
	FIELD("lost", lost, 0, JSON_INTEGER_MAX, 1),
	FIELD("late", late, 0, JSON_INTEGER_MAX, 1),
	FIELD("fence", fence, 0, JSON_INTEGER_MAX, 1),
	FIELD("revocation", revocation, 0, JSON_INTEGER_MAX, 1),
	FIELD("placeholder", placeholder, 0, JSON_INTEGER_MAX, 1),
#undef FIELD
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))
_Static_assert(FIELDS + 2 == REDIS_COUPON_FIELDS, "the status and the run id, too");

static void bad_add(struct redis_coupon *coupon, const char *field, const char *what)
{
	/* Names with a NUL, which only hands write, may repeat one. */
	if (coupon->bad_n < REDIS_COUPON_FIELDS)
		coupon->bad[coupon->bad_n++] = (struct redis_coupon_bad){ field, what };
}

void redis_coupon_parse(struct redis_coupon *coupon, const redisReply *hash)
{
	unsigned seen = 0; /* by the place in the table */
	int is_held, is_good;

	*coupon = (struct redis_coupon){ 0 };
	for (size_t i = 0; i + 1 < hash->elements; i += 2) {
		const char *name = hash->element[i]->str, *text = hash->element[i + 1]->str;
		size_t len = hash->element[i + 1]->len;

		if (strcmp(name, "run_id") == 0) {
			if (len == REDIS_RUN_ID_SIZE - 1 && strspn(text, "0123456789abcdef") == len)
				snprintf(coupon->run_id, sizeof(coupon->run_id), "%s", text);
			else
				bad_add(coupon, "run_id", "is malformed");
		} else if (strcmp(name, "status") == 0) {
			if (strcmp(text, "open") == 0 || strcmp(text, "paused") == 0 ||
			    strcmp(text, "closed") == 0)
				snprintf(coupon->status, sizeof(coupon->status), "%s", text);
			else
				bad_add(coupon, "status", "is malformed");
		}
		for (unsigned k = 0; k < FIELDS; k++) {
			const struct field *field = &fields[k];
			int64_t *value = (int64_t *)(void *)((char *)coupon + field->offset),
				number;

			if (strcmp(name, field->name) != 0)
				continue;
			*value = strtoll(text, NULL, 10);
			is_good = strlen(text) == len && (len == 1 || *text != '0') &&
				  number_parse(text, JSON_INTEGER_MAX, &number) == 0 &&
				  *value >= field->least && *value <= field->most;
			if (!is_good)
				bad_add(coupon, field->name, "is malformed");
			seen |= 1U << k;
		}
	}

	/* The first one alone: what is malformed may be missing, too. */
	is_held = redis_coupon_is_held(coupon);
	for (size_t i = 0; i < FIELDS && !is_held; i++)
		if (!fields[i].is_optional && !(seen & (1U << i)) && coupon->bad_n == 0)
			bad_add(coupon, fields[i].name, "is missing");
	if (coupon->bad_n == 0 && !is_held && !*coupon->status)
		bad_add(coupon, "status", "is missing");
	if (coupon->bad_n == 0 && !*coupon->run_id)
		bad_add(coupon, "run_id", "is missing");
}

int redis_coupon_is_held(const struct redis_coupon *coupon)
{
	return strspn(coupon->run_id, "0") == REDIS_RUN_ID_SIZE - 1;
}

int redis_coupon_read(struct redis_client *redis, int64_t coupon, struct redis_coupon *read)
{
	redisReply *hash = coupon_call(redis, coupon, "HGETALL", COUPON_KEY_COUPON, NULL);
	int is_there;

	*read = (struct redis_coupon){ 0 };
	if (!hash)
		return -1;
	is_there = hash->elements > 0;
	redis_coupon_parse(read, hash);
	freeReplyObject(hash);
	return is_there;
}

int64_t redis_coupon_taken(const struct redis_coupon *read)
{
	return read->total - read->stock - read->reserved - read->lost;
}

int redis_coupon_is_verified(struct redis_client *redis, const struct redis_coupon *read)
{
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s;

	return redis_client_process(redis, run_id, &uptime_s) == 0 &&
	       strcmp(read->run_id, run_id) == 0;
}

int redis_coupon_filled(struct redis_client *redis, int64_t coupon, struct redis_filled *filled)
{
	redisReply *reply = coupon_call(redis, coupon, "GET", COUPON_KEY_FILLED, NULL);
	int is_there = reply && reply->type == REDIS_REPLY_STRING &&
		       sscanf(reply->str, "%" SCNd64 " %" SCNd64 " %" SCNd64, &filled->filled,
			      &filled->rows, &filled->ms) == 3;

	filled->left_s = 0;
	if (is_there && filled->filled > 0 && filled->rows > filled->filled)
		filled->left_s = (int64_t)((double)filled->ms / 1000 *
						   (double)(filled->rows - filled->filled) /
						   (double)filled->filled +
					   0.5);
	if (reply)
		freeReplyObject(reply);
	return is_there;
}

void generations_fini(struct generations *generations)
{
	free(generations->list);
	*generations = (struct generations){ 0 };
}

struct generation *generation_find(struct generations *generations, int64_t number)
{
	for (size_t i = 0; i < generations->n; i++)
		if (generations->list[i].number == number)
			return &generations->list[i];
	generations->list = array_room(generations->list, generations->n, &generations->size,
				       sizeof(*generations->list));
	generations->list[generations->n] = (struct generation){ .number = number };
	return &generations->list[generations->n++];
}

void generation_raise(struct generations *generations, int64_t number, int64_t high)
{
	struct generation *generation = generation_find(generations, number);

	if (high > generation->high)
		generation->high = high;
}

void generation_add_row(struct generations *generations, const PGresult *rows, int row, int first)
{
	struct generation *generation = generation_find(generations, number_at(rows, row, first));

	generation->high = number_at(rows, row, first + 1);
	generation->settled = number_at(rows, row, first + 2);
	if (first + 3 < PQnfields(rows))
		generation->idle_ms = PQgetisnull(rows, row, first + 3)
					      ? INT64_MAX
					      : number_at(rows, row, first + 3);
}

static int texts_raise(struct generations *generations, const char *number_text,
		       const char *high_text)
{
	int64_t number, high;

	if (number_parse(number_text, INT32_MAX, &number) ||
	    number_parse(high_text, INT64_MAX, &high))
		return -1;
	generation_raise(generations, number, high);
	return 0;
}

int generations_raise(struct generations *generations, const redisReply *hash,
		      const redisReply *seen)
{
	const char *own = "", *seq = "";
	int rc = 0;

	for (size_t i = 0; hash && i + 1 < hash->elements; i += 2) {
		const char *name = hash->element[i]->str, *value = hash->element[i + 1]->str;

		if (strcmp(name, "generation") == 0)
			own = value;
		else if (strcmp(name, "seq") == 0)
			seq = value;
		else if (strncmp(name, "high:", 5) == 0)
			rc |= texts_raise(generations, name + 5, value);
	}
	if (*own && *seq)
		rc |= texts_raise(generations, own, seq);
	for (size_t i = 0; seen && i + 1 < seen->elements; i += 2)
		rc |= texts_raise(generations, seen->element[i]->str, seen->element[i + 1]->str);
	return rc;
}

int64_t generations_unsettled(const struct generations *generations, int64_t current)
{
	int64_t n = 0;

	for (size_t i = 0; i < generations->n; i++) {
		const struct generation *generation = &generations->list[i];

		if ((current == 0 || generation->number != current) &&
		    generation->high > generation->settled)
			n += generation->high - generation->settled;
	}
	return n;
}

void generations_arrays(const struct generations *generations, struct postgres_array *numbers,
			struct postgres_array *highs)
{
	for (size_t i = 0; i < generations->n; i++) {
		postgres_array_add_number(numbers, generations->list[i].number);
		postgres_array_add_number(highs, generations->list[i].high);
	}
}

int coupon_scan(struct redis_client *redis, int64_t coupon, enum coupon_key which, int count,
		coupon_scan_fn *step, void *context)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];
	int rc;

	coupon_key(coupon, which, key);
	do {
		redisReply *reply = redis_client_hscan(redis, key, cursor, count);

		if (!reply)
			return -1;
		rc = step(context, reply->element[1]);
		freeReplyObject(reply);
	} while (rc == 0 && strcmp(cursor, "0") != 0);
	return rc;
}

int outbox_entries(const redisReply *entries, int64_t coupon, outbox_fn *take, void *context)
{
	struct json_arena *arena = json_arena_new();
	struct message *message = checked(malloc(sizeof(*message)));
	char batch[ULID_SIZE];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i + 1 < entries->elements; i += 2) {
		const redisReply *field = entries->element[i], *body = entries->element[i + 1];
		const char *error = NULL;

		if (message_decode(arena, body->str, body->len, message, &error)) {
			rc = take(context, field, NULL, error);
			continue;
		}
		if (strcmp(ulid_format(&message->batch, batch), field->str) != 0)
			error = "its message is of another batch";
		else
			error = message->coupon != coupon ? "its message is of another coupon"
							  : NULL;
		rc = take(context, field, message, error);
	}
	free(message);
	json_arena_free(arena);
	return rc;
}

struct outbox_scan {
	int64_t coupon;
	outbox_fn *take;
	void *context;
};

static int entries_take(void *context, const redisReply *entries)
{
	const struct outbox_scan *scan = context;

	return outbox_entries(entries, scan->coupon, scan->take, scan->context);
}

int outbox_scan(struct redis_client *redis, int64_t coupon, outbox_fn *take, void *context)
{
	struct outbox_scan scan = { coupon, take, context };

	return coupon_scan(redis, coupon, COUPON_KEY_OUTBOX, OUTBOX_COUNT, entries_take, &scan);
}

redisReply *coupon_fields(struct redis_client *redis, int64_t coupon, enum coupon_key which,
			  const char *const *names, size_t n)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[2 + COUPON_SLOTS_MAX] = { "HMGET", coupon_key(coupon, which, key) };
	redisReply *reply;

	check(n >= 1 && n <= COUPON_SLOTS_MAX);
	memcpy(argv + 2, names, n * sizeof(*names));
	reply = redis_client_call(redis, 2 + (int)n, argv);
	check(!reply || (reply->type == REDIS_REPLY_ARRAY && reply->elements == n));
	return reply;
}

redisReply *coupon_records(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			   size_t n)
{
	const char *users[COUPON_SLOTS_MAX];

	check(n <= COUPON_SLOTS_MAX);
	for (size_t i = 0; i < n; i++)
		users[i] = slots[i].user.text;
	return coupon_fields(redis, coupon, COUPON_KEY_USERS, users, n);
}

int coupon_has(struct redis_client *redis, int64_t coupon, enum coupon_key which,
	       const struct slot *slots, size_t n, char *has)
{
	char key[COUPON_KEY_SIZE], member[ULID_SIZE + 8];
	const char *argv[] = { which == COUPON_KEY_OUTBOX ? "HEXISTS" : "SISMEMBER",
			       coupon_key(coupon, which, key), member };
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		ulid_format(&slots[i].batch, member);
		if (which == COUPON_KEY_KNOWN)
			snprintf(member + ULID_LEN, sizeof(member) - ULID_LEN, ":%d",
				 slots[i].index);
		redis_client_append(redis, 3, argv);
	}
	for (size_t i = 0; i < n; i++) {
		redisReply *reply = redis_client_next(redis);

		has[i] = reply && redis_reply_number(reply) == 1;
		rc |= reply ? 0 : -1;
		if (reply)
			freeReplyObject(reply);
	}
	return rc;
}
