#include "coupon/generation.h"

#include "common/array.h"
#include "common/check.h"
#include "common/postgres/session.h"
#include "common/redis/redis.h"

#include <stdlib.h>
#include <string.h>

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

static int is_array(const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_ARRAY;
}

int generations_raise(struct generations *generations, const redisReply *hash,
		      const redisReply *seen)
{
	const char *own = "", *seq = "";
	int rc = 0;

	for (size_t i = 0; is_array(hash) && i + 1 < hash->elements; i += 2) {
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
	for (size_t i = 0; is_array(seen) && i + 1 < seen->elements; i += 2)
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
