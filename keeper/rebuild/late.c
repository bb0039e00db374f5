/* Reports the late outcomes of older generations to Redis (lua/late.lua). */
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "coupon/slot.h"
#include "embed.h"
#include "keeper/rebuild/rebuild.h"

#include <stdlib.h>
#include <string.h>

#define ARGS_HEAD 1
#define ARGS_EACH 9
#define NO_BATCH "00000000000000000000000000"

enum column { COUPON, NUM, GENERATION, SEQ, USER_ID, SLOT, BATCH, IDX, KEY, REASON, IS_OVER };

/* One coupon's part of a page. */
struct part {
	const PGresult *page;
	int first, n;
	const char *argv[ARGS_HEAD + LATE_PAGE * ARGS_EACH];
	char batches[LATE_PAGE][ULID_SIZE];
};

static const char *value(const struct part *part, int i, enum column column)
{
	return PQgetvalue(part->page, part->first + i, (int)column);
}

static const char *outcome_of(const char *reason)
{
	if (*reason == '\0')
		return "issued";
	return strcmp(reason, "out_of_stock") == 0 ? "drop" : "free";
}

/* Whether the script can have written the receive: other messages may name any slot. */
static int is_possible(const struct part *part, int i, struct slot *slot)
{
	return slot_of_row(slot, part->page, part->first + i, USER_ID) == 0 && slot->number >= 1 &&
	       slot->number <= RECEIVE_SLOT_MAX && slot->index <= RECEIVE_INDEX_MAX &&
	       *value(part, i, GENERATION) != '-' && *value(part, i, SEQ) != '-';
}

static void args_fill(struct part *part, int i)
{
	const char **argv = &part->argv[ARGS_HEAD + i * ARGS_EACH];
	const char *none[ARGS_EACH] = {
		value(part, i, NUM), "0", "0", "1", "1", NO_BATCH, "0", "", "none"
	};
	struct slot slot;

	memcpy(argv, none, sizeof(none));
	if (!is_possible(part, i, &slot))
		return;
	for (int j = 1; j < ARGS_EACH - 1; j++)
		argv[j] = value(part, i, (enum column)(NUM + j));
	argv[5] = ulid_format(&slot.batch, part->batches[i]);
	argv[8] = outcome_of(value(part, i, REASON));
}

/* Deletes the outcomes that Redis has counted. 0, or -1. Locked rows stay and are sent again. */
static int counted(struct late *late, struct keeper_context *context, const struct part *part)
{
	int64_t coupon = strtoll(value(part, 0, COUPON), NULL, 10);

	if (put_off_waits(&late->put_off, coupon, clock_monotonic_ms()))
		return 0;
	if (keeper_database_run(context->database, sql_query_late_counted,
				POSTGRES_ARGUMENTS(postgres_number(coupon),
						   postgres_text(value(part, part->n - 1, NUM)),
						   postgres_number(context->fence))) == 0) {
		put_off_end(&late->put_off, coupon);
		return 0;
	}
	if (keeper_context_failed(context))
		return -1;
	keeper_context_put_off(&late->put_off, coupon);
	return 0;
}

/* 0, or -1. Outcomes stay if Redis does not have the coupon or refuses the call. */
static int part_count(struct late *late, struct keeper_context *context, struct part *part)
{
	int64_t coupon = strtoll(value(part, 0, COUPON), NULL, 10);
	char fence[KEEPER_FENCE_SIZE], word[REDIS_WORD_SIZE];

	if (*value(part, 0, IS_OVER) == 't')
		return counted(late, context, part);
	part->argv[0] = keeper_context_fence(context, fence);
	for (int i = 0; i < part->n; i++)
		args_fill(part, i);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_late, coupon,
						 COUPON_KEY_COUPON | COUPON_KEY_USERS |
							 COUPON_KEY_KNOWN | COUPON_KEY_CODES,
						 ARGS_HEAD + part->n * ARGS_EACH, part->argv),
			word);
	if (strcmp(word, "ok") == 0) {
		fault_point(FAULT_LATE_COUNTED);
		if (!put_off_waits(&late->put_off, coupon, clock_monotonic_ms()))
			log_info("late_counted", LOG_I("coupon", coupon),
				 LOG_I("receives", part->n));
		return counted(late, context, part);
	}
	if (strcmp(word, "gap") == 0 && keeper_context_event_is_new(context, coupon, "late_gap"))
		log_error("late_gap", LOG_I("coupon", coupon));
	return keeper_context_word(context, word);
}

static int page_count(struct late *late, struct keeper_context *context, const PGresult *page)
{
	int rows = PQntuples(page), rc = 0;
	struct part *part = malloc(sizeof(*part));

	check(part != NULL);
	for (int first = 0; rc == 0 && first < rows; first += part->n) {
		*part = (struct part){ .page = page, .first = first, .n = 1 };
		while (first + part->n < rows &&
		       strcmp(value(part, part->n, COUPON), value(part, 0, COUPON)) == 0)
			part->n++;
		rc = keeper_context_goes_on(context) || part_count(late, context, part) ? -1 : 0;
	}
	free(part);
	return rc;
}

int late_step(struct late *late, struct keeper_context *context)
{
	PGresult *page = keeper_database_query(context->database, sql_query_late_page,
					       POSTGRES_ARGUMENTS(postgres_number(late->coupon),
								  postgres_number(late->number),
								  postgres_number(LATE_PAGE)));
	int rows, rc;

	if (!page)
		return -1;
	rows = PQntuples(page);
	rc = page_count(late, context, page);
	late->coupon = late->number = 0;
	if (rc == 0 && rows == LATE_PAGE) {
		late->coupon = strtoll(PQgetvalue(page, rows - 1, COUPON), NULL, 10);
		late->number = strtoll(PQgetvalue(page, rows - 1, NUM), NULL, 10);
		rc = 1;
	}
	PQclear(page);
	return rc;
}
