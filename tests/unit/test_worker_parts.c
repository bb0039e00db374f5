/*
 * The outcomes of settle(), the reply to a gateway, the arguments of settle(), and decisions of the
 * keeper.
 */
#include "keeper/coupon_state.h"
#include "worker/settlement.h"
#include "worker/settler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct message message;
static struct user_id second_user; /* of the second receive; none: 43 */

static struct settlement *taken_make(size_t receives, const char *key)
{
	struct settlement *s = settlement_new(NULL, NULL, 16, 16);

	memset(&message, 0, sizeof(message));
	assert_int_equal(ulid_parse(&message.batch, "01ARZ3NDEKTSV4RRFFQ69G5FAV", 26), 0);
	message.coupon = 1001;
	message.generation = 3;
	message.seq = 0x0102030405060708;
	message.at_ms = 1700000000123;
	message.receives_n = receives;
	for (size_t i = 0; i < receives; i++) {
		message.receives[i].user = i == 1 && second_user.len
						   ? second_user
						   : user_id_of_number(42 + (int64_t)i);
		message.receives[i].slot = 7;
		strcpy(message.receives[i].tail, key);
	}
	settlement_add(s, delivery_new(1, &message, NULL), 0);
	assert_int_equal(settlement_take(s, 1000, 0), receives);
	return s;
}

static void test_outcome_words(void **state)
{
	struct outcome outcome;

	(void)state;
	assert_int_equal(outcome_parse("repeated", "", &outcome), 0);
	assert_int_equal(outcome.kind, OUTCOME_REPEATED);
	assert_int_equal(outcome_parse("rejected", "out_of_stock", &outcome), 0);
	assert_int_equal(outcome.kind, OUTCOME_REJECTED);
	assert_string_equal(reason_text(outcome.reason), "out_of_stock");
	assert_int_equal(outcome_parse("rejected", "", &outcome), -1);
	assert_int_equal(outcome_parse("rejected", NULL, &outcome), -1);
	assert_int_equal(outcome_parse("rejected", "weather", &outcome), -1);
	assert_int_equal(outcome_parse("issued", "", &outcome), -1);
}

static void test_reply(void **state)
{
	struct settlement *s = taken_make(3, "");
	static struct reply reply;
	static char text[REPLY_SIZE];
	size_t len;

	(void)state;
	settlement_outcome(s, 1, (struct outcome){ OUTCOME_REJECTED, REASON_SLOT_TAKEN });
	settlement_outcome(s, 2, (struct outcome){ OUTCOME_REPEATED, REASON_NONE });
	delivery_reply(s->taken[0], &reply);
	len = reply_write(&reply, text);
	assert_string_equal(text,
			    "{\"v\":1,\"batch\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"outcomes\":"
			    "[[0,\"issued\"],[1,\"rejected\",\"slot_taken\"],[2,\"issued\"]]}");
	assert_int_equal(len, strlen(text));
	settlement_free(s);
}

static void test_settled_by_its_last_part(void **state)
{
	struct settlement *s = taken_make(5, "");
	struct delivery *delivery = delivery_new(2, &message, NULL);

	(void)state;
	assert_true(delivery_is_settled_by_part(s->taken[0]));
	delivery_part_limit(delivery, 2);
	assert_false(delivery_is_settled_by_part(delivery));
	assert_int_equal(delivery_part_committed(delivery), DELIVERY_WAITING);
	assert_true(delivery_is_settled_by_part(delivery));
	/* The receive at index 2 is refused, the rest is settled. */
	assert_int_equal(delivery_part_refused(delivery, "22P02"), DELIVERY_WAITING);
	assert_int_equal(delivery_part_size(delivery), 1);
	assert_int_equal(delivery_part_refused(delivery, "22P02"), DELIVERY_WAITING);
	assert_int_equal(delivery->end, 5);
	assert_false(delivery_is_settled_by_part(delivery));
	delivery_free(delivery, NULL);
	settlement_free(s);
}

static void array_expect(const struct settle_args *args, int i, const void *bytes, size_t len)
{
	assert_int_equal(args->arrays[i].len, len);
	assert_memory_equal(args->arrays[i].data, bytes, len);
}

/*
 * PostgreSQL's binary arrays, byte by byte; filled twice, so that remains of the first time are
 * detected.
 */
static void test_arguments(void **state)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct settlement *s;
	struct settle_args args;

	(void)state;
	user_id_parse(&second_user, "{\"", 2);
	s = taken_make(2, "k~");
	settle_args_init(&args);
	settlement_args_fill(&args, s);
	settlement_args_fill(&args, s);
	array_expect(&args, 2,
		     "\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\2\0\0\0\1"
		     "\0\0\0\x8\1\2\3\4\5\6\7\x8\0\0\0\x8\1\2\3\4\5\6\7\x9",
		     44);
	array_expect(&args, 4, "\0\0\0\1\0\0\0\0\0\0\0\x15\0\0\0\2\0\0\0\1\0\0\0\2\0\0\0\0\0\2\0\1",
		     32);
	array_expect(&args, 7, "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1\0\0\0\2k~\0\0\0\2k~",
		     32);
	assert_int_equal(args.arrays[3].len, 20 + 2 * 20);
	array_expect(&args, 5,
		     "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1\0\0\0\2"
		     "42\0\0\0\2{\"",
		     32);
	settle_args_arguments(&args, arguments);
	assert_int_equal(arguments[8].array->n, 0);
	settle_args_fini(&args);
	settlement_free(s);
}

/* A receive without a code has an empty one if another receive of the transaction has one. */
static void test_arguments_with_a_code(void **state)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];
	struct settlement *s = taken_make(2, "k");
	struct settle_args args;

	(void)state;
	strcpy(message.receives[1].tail, "\t17.5");
	settlement_free(s);
	s = settlement_new(NULL, NULL, 16, 16);
	settlement_add(s, delivery_new(1, &message, NULL), 0);
	settlement_take(s, 1000, 0);
	settle_args_init(&args);
	settlement_args_fill(&args, s);
	array_expect(&args, 7, "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1\0\0\0\1k\0\0\0\0", 29);
	array_expect(&args, 8,
		     "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0\4"
		     "17.5",
		     32);
	settle_args_arguments(&args, arguments);
	assert_ptr_equal(arguments[8].array, &args.arrays[8]);
	settle_args_fini(&args);
	settlement_free(s);
}

#define RUN_ID "0123456789012345678901234567890123456789"

static enum coupon_action action_of(struct coupon_row row, struct coupon_look look)
{
	return coupon_action(&row, &look, RUN_ID);
}

static void test_action_absent(void **state)
{
	const struct coupon_look none = { 0 }, outbox = { .outbox_n = 1 }, users = { .users_n = 1 };

	(void)state;
	assert_int_equal(action_of((struct coupon_row){ .id = 1 }, none), COUPON_LOAD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .status = COUPON_PAUSED }, none),
			 COUPON_LOAD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .status = COUPON_CLOSED }, none),
			 COUPON_KEEP);
	/* A generation was started, or rows exist: only a rebuild finds the taken slots. */
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .issued = 1 }, none),
			 COUPON_REBUILD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .generation = 1 }, none),
			 COUPON_REBUILD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1,
							.status = COUPON_CLOSED,
							.generation = 1 },
				   none),
			 COUPON_REBUILD);
	/* Receives are in flight: it is never handled as new. */
	assert_int_equal(action_of((struct coupon_row){ .id = 1 }, outbox), COUPON_REBUILD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1 }, users), COUPON_REBUILD);
}

static void test_action_present(void **state)
{
	const struct coupon_row row = { .id = 1, .generation = 2, .version = 5 };
	struct coupon_look look = { .present = 1, .run_id = RUN_ID, .generation = 2, .version = 5 };

	(void)state;
	assert_int_equal(action_of(row, look), COUPON_KEEP);
	assert_true(coupon_is_verified(&row, &look, RUN_ID));
	look.version = 4;
	assert_int_equal(action_of(row, look), COUPON_TERMS);
	look.run_id[0] = 'f';
	assert_int_equal(action_of(row, look), COUPON_VERIFY);
	assert_false(coupon_is_verified(&row, &look, RUN_ID));
	/* Codes that were revoked come first: it would be opened without them. */
	assert_int_equal(action_of((struct coupon_row){ .generation = 2, .revocation = 1 }, look),
			 COUPON_REVOKE);
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .version = 5 }, look),
			 COUPON_FOREIGN);
	look.run_id[0] = '0';
	look.generation = 3;
	assert_int_equal(action_of(row, look), COUPON_FOREIGN);
	assert_false(coupon_is_verified(&row, &look, RUN_ID));
	look.broken = 1;
	assert_int_equal(action_of(row, look), COUPON_KEEP);
	look.generation = 2;
	assert_false(coupon_is_verified(&row, &look, RUN_ID));
}

static void test_action_rebuild(void **state)
{
	const struct coupon_row row = { .id = 1, .generation = 2, .version = 5 };
	const struct coupon_row asked = {
		.id = 1, .generation = 2, .version = 5, .rebuild_asked = 3, .rebuild_done = 2
	};
	const struct coupon_look sound = {
		.present = 1, .run_id = RUN_ID, .generation = 2, .version = 5, .seq = 9
	};
	struct coupon_look look = sound;

	(void)state;
	look.placeholder = 1;
	assert_int_equal(action_of(row, look), COUPON_REBUILD);
	look.generation = 1; /* its keeper died while it loaded the coupon for the first time */
	assert_int_equal(action_of((struct coupon_row){ .id = 1, .version = 5 }, look),
			 COUPON_REBUILD);
	look = sound;
	look.generation = 1; /* its keeper died before the end */
	assert_int_equal(action_of(row, look), COUPON_REBUILD);
	look = sound;
	look.flagged = 1;
	assert_int_equal(action_of(row, look), COUPON_REBUILD);
	look = sound;
	look.reported = 9;
	assert_int_equal(action_of(row, look), COUPON_KEEP);
	look.reported = 10;
	assert_int_equal(action_of(row, look), COUPON_REBUILD);
	assert_int_equal(action_of((struct coupon_row){ .id = 1,
							.generation = 2,
							.version = 5,
							.seq_seen = 9,
							.settled = 10 },
				   sound),
			 COUPON_REBUILD);
	assert_int_equal(action_of((struct coupon_row){ .generation = 2, .seq_seen = 10 }, sound),
			 COUPON_REBUILD);
	assert_int_equal(action_of(asked, sound), COUPON_COMPARE);
	look = sound;
	look.generation = 3;
	assert_int_equal(action_of(asked, look), COUPON_REBUILD);
	look.broken = 1;
	assert_int_equal(action_of(asked, look), COUPON_REBUILD);
}

static void test_action_users(void **state)
{
	const struct coupon_row row = { .id = 1, .limit = 2, .generation = 2, .version = 5 };
	struct coupon_look look = { .present = 1,
				    .run_id = RUN_ID,
				    .generation = 2,
				    .version = 5,
				    .total = 10,
				    .stock = 3,
				    .reserved = 1,
				    .lost = 1,
				    .users_n = 3 };

	(void)state;
	assert_int_equal(action_of(row, look), COUPON_KEEP); /* 5 slots */
	look.users_n = 2;
	assert_int_equal(action_of(row, look), COUPON_COMPARE);
	look.version = 4; /* first the limit that these slots were taken under */
	assert_int_equal(action_of(row, look), COUPON_TERMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outcome_words),
		cmocka_unit_test(test_reply),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_arguments_with_a_code),
		cmocka_unit_test(test_action_absent),
		cmocka_unit_test(test_action_present),
		cmocka_unit_test(test_action_rebuild),
		cmocka_unit_test(test_action_users),
		cmocka_unit_test(test_settled_by_its_last_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
