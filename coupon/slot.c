#include "coupon/slot.h"

#include "common/array.h"
#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int slot_number_take(const char **text, int most)
{
	const char *first = *text;
	int number = 0;

	for (; **text >= '0' && **text <= '9' && number <= most; (*text)++)
		number = number * 10 + (**text - '0');
	if (*text == first || number > most || (*first == '0' && *text - first > 1) ||
	    **text != ':')
		return -1;
	(*text)++;
	return number;
}

int slot_next(const char **text, struct slot *slot)
{
	const char *at = *text, *stop;
	size_t key_len, tail_len;
	int number, index;

	if (!at)
		return -1;
	number = slot_number_take(&at, RECEIVE_SLOT_MAX);
	if (number < 1 || strlen(at) <= ULID_LEN || ulid_parse(&slot->batch, at, ULID_LEN) ||
	    at[ULID_LEN] != ':')
		return -1;
	at += ULID_LEN + 1;
	index = slot_number_take(&at, RECEIVE_INDEX_MAX);
	if (index < 0)
		return -1;
	stop = strchr(at, '\n');
	tail_len = stop ? (size_t)(stop - at) : strlen(at);
	if (receive_tail_parse(at, tail_len, &key_len))
		return -1;
	slot->number = (int16_t)number;
	slot->index = (int16_t)index;
	slot->key_len = (uint8_t)key_len;
	slot->tail_len = (uint8_t)tail_len;
	slot->tail = at;
	*text = stop ? stop + 1 : NULL;
	return 0;
}

int slots_count(const redisReply *records)
{
	const char *at = NULL;
	struct slot slot;
	int n = 0;

	if (!records || records->type == REDIS_REPLY_ERROR)
		return -1;
	if (records->type == REDIS_REPLY_STRING)
		at = records->str;
	while (slot_next(&at, &slot) == 0)
		n++;
	return at ? -1 : n;
}

int slot_of_row(struct slot *slot, const PGresult *rows, int row, int first)
{
	const char *user = PQgetvalue(rows, row, first);

	*slot = (struct slot){
		.number = (int16_t)strtol(PQgetvalue(rows, row, first + 1), NULL, 10),
		.index = (int16_t)strtol(PQgetvalue(rows, row, first + 3), NULL, 10),
	};
	if (first + 4 < PQnfields(rows)) {
		slot->tail = PQgetvalue(rows, row, first + 4);
		slot->tail_len = (uint8_t)PQgetlength(rows, row, first + 4);
		slot->key_len = (uint8_t)receive_tail_key_len(slot->tail);
	}
	return user_id_parse(&slot->user, user, strlen(user)) ||
			       ulid_from_uuid(&slot->batch, PQgetvalue(rows, row, first + 2))
		       ? -1
		       : 0;
}

char *slot_record_format(const struct slot *slot, char out[SLOT_RECORD_SIZE])
{
	char batch[ULID_SIZE];

	snprintf(out, SLOT_RECORD_SIZE, "%d:%s:%d:%.*s", slot->number,
		 ulid_format(&slot->batch, batch), slot->index, slot->tail_len, slot->tail);
	return out;
}

char *slot_receive_format(const struct slot *slot, int64_t coupon, char out[RECEIVE_SIZE])
{
	receive_format(&(struct receive){ .coupon = coupon,
					  .user = slot->user,
					  .batch = slot->batch,
					  .index = slot->index },
		       out);
	return out;
}

size_t slot_code(const struct slot *slot, const char **code)
{
	size_t len;

	*code = receive_tail_code(slot->tail, slot->tail_len, slot->key_len, &len);
	return len && memchr(*code, '.', len) ? len : 0;
}

int slot_compare(const struct slot *a, const struct slot *b)
{
	int order = user_id_compare(&a->user, &b->user);

	return order ? order : (a->number > b->number) - (a->number < b->number);
}

int slot_same_receive(const struct slot *a, const struct slot *b)
{
	return a->index == b->index && memcmp(&a->batch, &b->batch, sizeof(a->batch)) == 0;
}

enum slot_found slot_look_up(const struct slot *wanted, const char *tail, const redisReply *records)
{
	enum slot_found found = SLOT_NONE;
	const char *text = records->str;
	struct slot slot;

	if (records->type != REDIS_REPLY_STRING)
		return SLOT_NONE;
	while (slot_next(&text, &slot) == 0) {
		if (slot.number != wanted->number)
			continue;
		if (!slot_same_receive(&slot, wanted))
			found = SLOT_OTHER;
		else if (tail && (strlen(tail) != slot.tail_len ||
				  memcmp(tail, slot.tail, slot.tail_len) != 0))
			found = SLOT_OTHER_KEY;
		else
			found = SLOT_SAME;
	}
	return text || strlen(records->str) != records->len ? SLOT_MALFORMED : found;
}

void slots_add(struct slots *slots, const struct slot *slot)
{
	slots->list = array_room(slots->list, slots->n, &slots->size, sizeof(*slot));
	slots->list[slots->n++] = *slot;
}

int slots_add_user(struct slots *slots, const redisReply *user, const redisReply *records)
{
	const char *text = records->str;
	const size_t first = slots->n;
	struct slot slot;
	int is_twice = 0;

	if (user_id_parse(&slot.user, user->str, user->len))
		return -1;
	while (slot_next(&text, &slot) == 0) {
		for (size_t i = first; i < slots->n; i++)
			if (slots->list[i].number == slot.number)
				is_twice = 1; /* the script never takes a slot for two receives */
		slots_add(slots, &slot);
	}
	return is_twice || text || strlen(records->str) != records->len ? -1 : 0;
}

void slots_read(struct slots *slots, const redisReply *users)
{
	slots->n = 0;
	for (size_t i = 0; i + 1 < users->elements; i += 2)
		(void)slots_add_user(slots, users->element[i], users->element[i + 1]);
}

void slots_add_message(struct slots *slots, const struct message *message)
{
	for (size_t i = 0; i < message->receives_n; i++) {
		const struct message_receive *receive = &message->receives[i];

		slots_add(slots, &(struct slot){
					 .user = receive->user,
					 .batch = message->batch,
					 .number = (int16_t)receive->slot,
					 .index = (int16_t)i,
					 .key_len = (uint8_t)receive_tail_key_len(receive->tail),
					 .tail_len = (uint8_t)strlen(receive->tail),
					 .tail = receive->tail,
				 });
	}
}

static int compare(const void *a, const void *b)
{
	const struct slot *one = a, *other = b;
	int order = slot_compare(one, other);

	if (order == 0)
		order = memcmp(&one->batch, &other->batch, sizeof(one->batch));
	return order ? order : one->index - other->index;
}

void slots_sort(struct slots *slots)
{
	slots->n = list_unique(slots->list, slots->n, sizeof(*slots->list), compare);
}

void slots_fini(struct slots *slots)
{
	free(slots->list);
	*slots = (struct slots){ 0 };
}

void slot_settle(const struct slot *slot, int64_t coupon, int64_t generation, int64_t seq,
		 int64_t at_ms, struct settle_args *args)
{
	settle_args_add(args, &(struct settle_receive){ .coupon = coupon,
							.generation = generation,
							.seq = seq,
							.batch = &slot->batch,
							.index = slot->index,
							.user = &slot->user,
							.slot = slot->number,
							.tail = slot->tail,
							.key_len = slot->key_len,
							.tail_len = slot->tail_len,
							.at_ms = at_ms });
}
