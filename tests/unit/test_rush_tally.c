/* What rush counts, and the verdict on it. */
#include "rush/tally.h"

#include "common/message/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01JD8Z6Q4T1M0V5K9X3B7C2N8R"

/*
 * A rush of three users with two requests each; every receive is of one batch, told apart by its
 * index.
 */
struct fixture {
	struct rush_plan plan;
	struct rush_requests requests;
	struct rush_receives before, rows, rejections;
	struct rush_tally tally;
};

static int setup(void **state)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.plan = (struct rush_plan){ .users = { .n = 3, .first = 10 },
				     .requests_per_user = 2,
				     .requests_n = 6,
				     .timeout_us = 1000000 };
	rush_coupons_add(&f.plan.coupons, 1001);
	rush_requests_init(&f.requests, &f.plan);
	for (int i = 0; i < 6; i++)
		rush_requests_send(&f.requests, 0, 0, 1000);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rush_requests_fini(&f->requests);
	rush_plan_fini(&f->plan);
	free(f->before.list);
	free(f->rows.list);
	free(f->rejections.list);
	return 0;
}

static int answer(struct fixture *f, int request, int code, const char *receive)
{
	struct client_reply reply = { .request = request, .code = code, .receive = receive };

	return rush_requests_answer(&f->requests, &reply, 5000);
}

/* The answer to `request` names index `index`. */
static void told(struct fixture *f, int request, int code, int index)
{
	char receive[100];

	snprintf(receive, sizeof(receive), "1001.%d." BATCH ".%d", 10 + request / 2, index);
	assert_int_equal(answer(f, request, code, receive), 0);
}

/* Adds an outcome of the user with this number and of the plan's coupon with this index. */
static void outcome_of_coupon(struct rush_receives *receives, int user, uint32_t coupon, int index)
{
	struct rush_receive receive = { .user = (uint32_t)user - 10,
					.coupon = coupon,
					.index = (int16_t)index };

	assert_int_equal(ulid_parse(&receive.batch, BATCH, ULID_LEN), 0);
	rush_receives_add(receives, &receive);
}

static void outcome(struct rush_receives *receives, int user, int index)
{
	outcome_of_coupon(receives, user, 0, index);
}

static struct rush_tally *tally(struct fixture *f)
{
	rush_receives_sort(&f->requests.told);
	rush_receives_sort(&f->rows);
	rush_receives_sort(&f->rejections);
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	return &f->tally;
}

static void test_all_well(void **state)
{
	struct fixture *f = *state;
	int64_t new = 0;

	told(f, 0, 0, 5);
	answer(f, 1, 4, NULL);
	told(f, 3, 0, 4);
	answer(f, 2, 4, NULL);
	told(f, 4, 0, 6);
	outcome(&f->rows, 12, 6);
	outcome(&f->rows, 10, 5);
	outcome(&f->rejections, 11, 4);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
	assert_int_equal(f->tally.told, 3);
	assert_int_equal(f->tally.issued, 2);
	assert_int_equal(f->tally.rejected, 1);
	assert_int_equal(rush_receives_new(&f->requests.told, &f->before, &new), 3);
	assert_int_equal(new, 3);
}

static void test_lost(void **state)
{
	struct fixture *f = *state;

	told(f, 0, 0, 5);
	outcome(&f->rows, 11, 5);
	assert_int_equal(tally(f)->lost, 1);
	assert_int_equal(f->tally.stray, 1);
	assert_string_equal(f->tally.wrong[0],
			    "1001.10." BATCH ".5: accepted, but neither issued nor rejected");
}

/* The id of a user is in the answers and in the names of wrong receives, not its number. */
static void test_uuids(void **state)
{
	struct fixture *f = *state;
	char receive[RECEIVE_SIZE], wrong[RUSH_WRONG_SIZE];
	struct user_id user;

	f->plan.users = (struct rush_users){
		.n = 3, .first = 10, .form = RUSH_UUID, .seeded = 1, .seed = 7
	};
	user = rush_users_id(&f->plan.users, 1);
	snprintf(receive, sizeof(receive), "1001.%s." BATCH ".255", user.text);
	snprintf(wrong, sizeof(wrong), "%s: accepted, but neither issued nor rejected", receive);
	assert_int_equal(answer(f, 0, 0, receive), RUSH_WRONG);
	assert_int_equal(answer(f, 4, 0, receive), RUSH_WRONG);
	assert_int_equal(answer(f, 3, 0, receive), 0);
	assert_int_equal(tally(f)->lost, 1);
	assert_string_equal(f->tally.wrong[0], wrong);
	outcome(&f->rows, 11, 255);
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(rush_tally_wrong(&f->tally), 0);
	assert_int_equal(f->tally.issued, 1);
}

/* The index of the coupon that the user with this number requests, and its id. */
static uint32_t coupon_index(const struct fixture *f, int user)
{
	return rush_plan_coupon(&f->plan, (uint32_t)user - 10);
}

static const char *coupon_of(const struct fixture *f, int user)
{
	static char texts[2][ID_SIZE];
	static int turn;

	turn = !turn;
	id_format(f->plan.coupons.list[coupon_index(f, user)], texts[turn]);
	return texts[turn];
}

static int answer_of_coupon(struct fixture *f, int request, const char *coupon)
{
	char receive[100];

	snprintf(receive, sizeof(receive), "%s.%d." BATCH ".%d", coupon, 10 + request / 2, request);
	return answer(f, request, 0, receive);
}

/* Plans three coupons; the users 10 and 11 request different ones. */
static void three_coupons(struct fixture *f)
{
	rush_coupons_add(&f->plan.coupons, INT64_C(1790000000000000001));
	rush_coupons_add(&f->plan.coupons, 7);
	assert_int_equal(rush_coupons_sort(&f->plan.coupons), 0);
	while (coupon_index(f, 10) == coupon_index(f, 11))
		f->plan.users.seed++;
}

/* Each user has the coupon that the seed gives it: in answers, counts and names. */
static void test_many_coupons(void **state)
{
	struct fixture *f = *state;
	int64_t new[3] = { 0 }, expected[3] = { 0 };
	char wrong[RUSH_WRONG_SIZE];

	three_coupons(f);
	assert_int_equal(answer_of_coupon(f, 0, coupon_of(f, 11)), RUSH_WRONG);
	for (int user = 10; user < 13; user++) {
		assert_int_equal(answer_of_coupon(f, 2 * (user - 10), coupon_of(f, user)), 0);
		expected[coupon_index(f, user)]++;
	}
	outcome_of_coupon(&f->rows, 10, coupon_index(f, 10), 0);
	outcome_of_coupon(&f->rows, 12, coupon_index(f, 12), 4);
	assert_int_equal(tally(f)->lost, 1);
	assert_int_equal(f->tally.issued, 2);
	snprintf(wrong, sizeof(wrong),
		 "%s.11." BATCH ".2: accepted, but neither issued nor rejected", coupon_of(f, 11));
	assert_string_equal(f->tally.wrong[0], wrong);
	outcome_of_coupon(&f->before, 12, coupon_index(f, 12), 4);
	expected[coupon_index(f, 12)]--;
	assert_int_equal(rush_receives_new(&f->requests.told, &f->before, new), 2);
	assert_memory_equal(new, expected, sizeof(new));
}

/* A row of another coupon of the rush: no answer explains it, an unknown one neither. */
static void test_row_of_another_coupon(void **state)
{
	struct fixture *f = *state;
	char wrong[2][RUSH_WRONG_SIZE];

	three_coupons(f);
	assert_int_equal(answer_of_coupon(f, 0, coupon_of(f, 10)), 0);
	answer(f, 1, 22, NULL);
	outcome_of_coupon(&f->rows, 10, coupon_index(f, 11), 0);
	assert_int_equal(tally(f)->lost, 1);
	assert_int_equal(f->tally.stray, 1);
	assert_int_equal(f->tally.from_unknown, 0);
	snprintf(wrong[0], RUSH_WRONG_SIZE,
		 "%s.10." BATCH ".0: accepted, but neither issued nor rejected", coupon_of(f, 10));
	snprintf(wrong[1], RUSH_WRONG_SIZE,
		 "%s.10." BATCH ".0: of a coupon that the user did not request", coupon_of(f, 11));
	assert_string_equal(f->tally.wrong[0], wrong[0]);
	assert_string_equal(f->tally.wrong[1], wrong[1]);
	outcome_of_coupon(&f->before, 10, coupon_index(f, 11), 0);
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(f->tally.stray, 0);
}

/* No more are kept than there is room for, and they are cut to the room of one. */
static void test_notes(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < RUSH_WRONG_MAX + 1; i++)
		rush_tally_note(&f->tally, "coupon %d: %0*d", i, i == 3 ? RUSH_WRONG_SIZE : 1, i);
	assert_int_equal(f->tally.wrong_n, RUSH_WRONG_MAX);
	assert_string_equal(f->tally.wrong[RUSH_WRONG_MAX - 1], "coupon 19: 19");
	assert_int_equal(strlen(f->tally.wrong[3]), RUSH_WRONG_SIZE - 1);
}

static void test_both_and_twice(void **state)
{
	struct fixture *f = *state;

	told(f, 0, 0, 5);
	told(f, 2, 0, 6);
	outcome(&f->rows, 10, 5);
	outcome(&f->rejections, 10, 5);
	outcome(&f->rows, 11, 6);
	outcome(&f->rows, 11, 6);
	assert_int_equal(tally(f)->both, 1);
	assert_int_equal(f->tally.twice, 1);
	assert_int_equal(f->tally.stray, 0);
}

static void test_one_receive_for_two_requests(void **state)
{
	struct fixture *f = *state;

	told(f, 0, 0, 5);
	told(f, 1, 0, 5);
	outcome(&f->rows, 10, 5);
	assert_int_equal(tally(f)->twice, 1);
	f->plan.keys = 1;
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(rush_tally_wrong(&f->tally), 0);
	assert_int_equal(f->tally.told, 1);
	f->plan.keys = 0;
	f->plan.codes = calloc(1, sizeof(*f->plan.codes));
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(rush_tally_wrong(&f->tally), 0);
}

static void test_key_not_kept(void **state)
{
	struct fixture *f = *state;

	f->plan.keys = 1;
	told(f, 0, 0, 5);
	told(f, 1, 0, 6);
	outcome(&f->rows, 10, 5);
	outcome(&f->rows, 10, 6);
	assert_int_equal(tally(f)->unkept, 1);
}

/* The first user is number 0 of the plan, which is not "none". */
static void test_first_user_keeps_its_key(void **state)
{
	struct fixture *f = *state;

	f->plan.keys = 1;
	told(f, 0, 0, 5);
	told(f, 1, 0, 5);
	told(f, 2, 0, 6);
	outcome(&f->rows, 10, 5);
	outcome(&f->rows, 11, 6);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
}

static void test_key_given_back_by_a_rejection(void **state)
{
	struct fixture *f = *state;

	f->plan.keys = 1;
	told(f, 0, 0, 5);
	told(f, 1, 0, 6);
	outcome(&f->rejections, 10, 5);
	outcome(&f->rows, 10, 6);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
	assert_int_equal(f->tally.told, 2);
}

static void test_told_otherwise(void **state)
{
	struct fixture *f = *state;

	f->plan.ack = RUSH_ISSUED;
	told(f, 0, 0, 5);
	told(f, 2, 9, 6);
	outcome(&f->rejections, 10, 5);
	outcome(&f->rows, 11, 6);
	assert_int_equal(tally(f)->other, 2);
}

/*
 * One outcome for each unknown answer, and no more; an outcome from before the rush is not
 * counted.
 */
static void test_unknown(void **state)
{
	struct fixture *f = *state;

	answer(f, 0, 22, NULL);
	told(f, 2, 22, 6);
	rush_requests_lost(&f->requests, 0);
	outcome(&f->rows, 10, 5);
	outcome(&f->rejections, 10, 7);
	outcome(&f->rows, 11, 6);
	outcome(&f->rows, 11, 8);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
	assert_int_equal(f->tally.told, 1);
	assert_int_equal(f->tally.from_unknown, 3);
	outcome(&f->rows, 11, 9);
	rush_receives_sort(&f->rows);
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(f->tally.stray, 1);
	outcome(&f->before, 11, 9);
	rush_tally(&f->tally, &f->requests, &f->before, &f->rows, &f->rejections);
	assert_int_equal(f->tally.stray, 0);
}

static void test_book_refuses_answers(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(answer(f, 6, 2, NULL), RUSH_WRONG);
	assert_int_equal(answer(f, -1, 2, NULL), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 19, NULL), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, NULL), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, "1001.11." BATCH ".0"), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, "1002.10." BATCH ".0"), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, "1001.10." BATCH ".256"), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, "1001.10." BATCH "."), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 0, "1001.10." BATCH ".0x"), RUSH_WRONG);
	assert_int_equal(answer(f, 0, 2, NULL), 0);
	assert_int_equal(answer(f, 0, 2, NULL), RUSH_WRONG);
	assert_int_equal(f->requests.ends[2], 1);
	assert_int_equal(f->requests.ends[RUSH_OPEN], 5);
}

static void test_expires_in_order(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(rush_requests_deadline_us(&f->requests), 1001000);
	assert_int_equal(answer(f, 0, 2, NULL), 0);
	assert_int_equal(rush_requests_expire(&f->requests, 1000999), RUSH_NONE);
	for (int i = 1; i < 6; i++)
		assert_int_equal(rush_requests_expire(&f->requests, 1001000), 0);
	assert_int_equal(rush_requests_expire(&f->requests, 1001000), RUSH_NONE);
	assert_true(rush_requests_deadline_us(&f->requests) == INT64_MAX);
	assert_int_equal(answer(f, 3, 2, NULL), RUSH_NONE);
	assert_int_equal(f->requests.overdue, 1);
	assert_int_equal(f->requests.doubted, 5);
	assert_int_equal(rush_requests_answered(&f->requests), 1);
}

/*
 * However many attempts with one key have no answer, they give one receive: a second row is none
 * that they explain. Of a rejected receive the key may be used again.
 */
static void test_one_key_of_unknown_attempts(void **state)
{
	struct fixture *f = *state;

	f->plan.keys = 1;
	for (int i = 0; i < 3; i++)
		rush_requests_doubt(&f->requests, 0);
	answer(f, 0, 20, NULL);
	assert_int_equal(f->requests.doubted, 1);
	outcome(&f->rejections, 10, 4);
	outcome(&f->rows, 10, 5);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
	assert_int_equal(f->tally.from_unknown, 2);
	outcome(&f->rows, 10, 6);
	assert_int_equal(rush_tally_wrong(tally(f)), 1);
	assert_int_equal(f->tally.unkept, 1);
	assert_string_equal(f->tally.wrong[0],
			    "1001.10." BATCH ".6: another receive for the same key or code");
	/* Without keys each is a request of its own. */
	f->plan.keys = 0;
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
}

/* The row that was told and another one, in whatever order. */
static void test_one_key_of_a_told_and_an_unknown_attempt(void **state)
{
	struct fixture *f = *state;

	f->plan.keys = 1;
	rush_requests_doubt(&f->requests, 0);
	told(f, 0, 0, 5);
	outcome(&f->rows, 10, 5);
	assert_int_equal(rush_tally_wrong(tally(f)), 0);
	outcome(&f->rows, 10, 4);
	assert_int_equal(rush_tally_wrong(tally(f)), 1);
	assert_int_equal(f->tally.unkept, 1);
	f->rows.list[0].index = 6;
	f->rows.list[1].index = 5;
	assert_int_equal(rush_tally_wrong(tally(f)), 1);
	assert_int_equal(f->tally.unkept, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_well, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uuids, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_coupons, setup, teardown),
		cmocka_unit_test_setup_teardown(test_row_of_another_coupon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_notes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_user_keeps_its_key, setup, teardown),
		cmocka_unit_test_setup_teardown(test_both_and_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_receive_for_two_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_key_not_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_key_given_back_by_a_rejection, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_told_otherwise, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_key_of_unknown_attempts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_key_of_a_told_and_an_unknown_attempt,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_book_refuses_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expires_in_order, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
