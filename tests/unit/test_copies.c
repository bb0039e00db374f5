/*
 * The second copies of messages: when Redis is asked for them, what is written to its outbox again,
 * and what a process that ends still has alone.
 */
#include "tests/unit/admission_rig.h"

#define LOOK_MS COPIES_LOOK_MS

static const struct copies_look covered = { 1, 0, 1, 100, 0 }, placeholder = { 1, 1, 1, 0, 0 },
				rebuilt = { 1, 0, 2, 0, 0 }, behind = { 1, 0, 1, 0, 0 },
				older = { 1, 0, 0, 500, 0 }, absent = { 0, 0, 0, 0, 0 };

/* A batch of one receive of this coupon, with this number in generation 1. */
static void accept(int64_t coupon, int64_t user, int64_t seq)
{
	struct call *call;

	submit(coupon, user);
	admission_flush(rig.admission);
	call = call_take();
	reply_make(call, 1, seq, ANSWER_OK);
	admission_replied(rig.admission, call, &reply);
}

static void pass(int64_t ms)
{
	rig.now_ms += ms;
	copies_tick(rig.copies);
}

/* Redis is asked for one coupon, and replies. */
static void look_reply(const char *run_id, const struct copies_look *look)
{
	struct copies_coupon *asked = rig.looked[0];

	assert_int_equal(rig.looked_n, 1);
	rig.looked_n = 0;
	copies_looked(rig.copies, asked, run_id, look);
}

static void write_reply(enum copies_result result)
{
	copies_written(rig.copies, rig.written_to, result);
}

static void looks_expect(size_t n)
{
	assert_int_equal(rig.looked_n, n);
}

static void writes_expect(int n)
{
	assert_int_equal(rig.writes, n);
}

static size_t unsafe(void)
{
	return copies_unsafe(rig.copies, 0, NULL, NULL);
}

static void test_redis_is_asked_after_a_second(void **state)
{
	(void)state;
	accept(7, 1, 1);
	pass(LOOK_MS - 1);
	looks_expect(0);
	pass(1);
	looks_expect(1);
	assert_true(rig.looked_id == 7);
	pass(10 * LOOK_MS);
	looks_expect(1); /* that one has not ended */
	look_reply("a", &covered);
	writes_expect(0);
	pass(LOOK_MS - 1);
	looks_expect(0);
	pass(1);
	look_reply("a", NULL); /* Redis is away: it is asked again */
	pass(LOOK_MS);
	look_reply("a", &covered);
	batches_confirm();
	pass(10 * LOOK_MS);
	looks_expect(0);
}

static void test_what_is_lost_is_written_again(void **state)
{
	static const struct copies_look *const lost[] = { &placeholder, &rebuilt, &behind, &older };

	(void)state;
	for (int i = 0; i < 4; i++) {
		char run_id[2] = { (char)('a' + i), '\0' };

		accept(1, 1 + i, 3);
		pass(LOOK_MS);
		look_reply(run_id, lost[i]);
		writes_expect(i + 1);
		assert_int_equal(rig.written_n, 1);
		assert_true(rig.written[0].generation == 1 && rig.written[0].seq == 3);
		assert_int_equal(rig.written[0].body_len, 6);
		assert_memory_equal(rig.written[0].body, "{body}", 6);
		assert_memory_equal(&rig.written[0].batch, &STAILQ_FIRST(&rig.published)->ulid,
				    sizeof(struct ulid));
		assert_int_equal(copies_lost(rig.copies), 1);
		write_reply(COPIES_WRITTEN);
		assert_int_equal(copies_lost(rig.copies), 0);
		batches_confirm();
	}
}

/* What was removed again meanwhile was settled. */
static void test_once_for_each_filling_and_process(void **state)
{
	static const struct copies_look next = { 1, 0, 3, 0, 0 };
	static const struct {
		const char *run_id;
		const struct copies_look *look;
		int writes;
	} steps[] = { { "a", &placeholder, 1 }, { "a", &placeholder, 1 }, { "a", &rebuilt, 2 },
		      { "a", &rebuilt, 2 },     { "b", &rebuilt, 3 },     { "b", &rebuilt, 3 },
		      { "b", &next, 4 },        { "b", &absent, 4 },      { "b", &next, 5 },
		      { "b", &next, 5 } };

	(void)state;
	accept(1, 1, 1);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		int before = rig.writes;

		pass(LOOK_MS);
		look_reply(steps[i].run_id, steps[i].look);
		writes_expect(steps[i].writes);
		if (rig.writes > before)
			write_reply(COPIES_WRITTEN);
	}
}

static void test_again_while_redis_refuses_or_has_no_coupon(void **state)
{
	(void)state;
	accept(1, 1, 1);
	pass(LOOK_MS);
	look_reply("a", &absent);
	writes_expect(0);
	assert_int_equal(copies_lost(rig.copies), 1);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	write_reply(COPIES_FAILED); /* out of memory */
	assert_int_equal(copies_lost(rig.copies), 1);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	write_reply(COPIES_MISSING);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	write_reply(COPIES_WRITTEN);
	writes_expect(3);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	writes_expect(3);
}

static void test_in_pieces(void **state)
{
	(void)state;
	for (int i = 0; i < COPIES_MESSAGES_MAX + 3; i++)
		accept(1, 1 + i, 1 + i);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	assert_int_equal(rig.written_n, COPIES_MESSAGES_MAX);
	assert_true(rig.written[0].seq == 1);
	write_reply(COPIES_WRITTEN);
	assert_int_equal(rig.written_n, 3);
	assert_true(rig.written[0].seq == COPIES_MESSAGES_MAX + 1);
	assert_int_equal(copies_lost(rig.copies), 3);
	write_reply(COPIES_WRITTEN);
	writes_expect(2);
	assert_int_equal(copies_lost(rig.copies), 0);
}

/* No piece is longer than a call may be, but that of one message. */
static void test_in_pieces_of_so_many_bytes(void **state)
{
	static const size_t lens[] = { COPIES_BYTES_MAX - 1, 1, 1, COPIES_BYTES_MAX + 1 },
			    pieces[] = { 2, 1, 1 };
	struct copy copies[4];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		copies[i] =
			(struct copy){ .coupon = 1, .seq = 9, .receives = 1, .body_len = lens[i] };
		copies_add(rig.copies, &copies[i]);
	}
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(rig.written_n, pieces[i]);
		write_reply(COPIES_WRITTEN);
	}
	assert_int_equal(copies_lost(rig.copies), 0);
}

static void test_so_many_coupons_are_asked_for_at_once(void **state)
{
	struct copy copies[20];

	(void)state;
	for (int i = 0; i < 20; i++) {
		copies[i] = (struct copy){ .coupon = 1 + i, .generation = 1, .receives = 1 };
		copies_add(rig.copies, &copies[i]);
	}
	pass(LOOK_MS);
	looks_expect(16);
	copies_looked(rig.copies, rig.looked[3], "a", &covered);
	pass(0);
	looks_expect(17);
}

/* Redis gets all of it again although its replicas lag, and it counts when they have it. */
static void test_while_its_replicas_lag(void **state)
{
	struct copies_look lags = rebuilt;

	(void)state;
	lags.is_alone = 1;
	for (int i = 0; i < COPIES_MESSAGES_MAX + 3; i++)
		accept(1, 1 + i, 1 + i);
	pass(LOOK_MS);
	look_reply("a", &lags);
	assert_int_equal(rig.written_n, COPIES_MESSAGES_MAX);
	write_reply(COPIES_ALONE);
	assert_int_equal(rig.written_n, 3);
	write_reply(COPIES_ALONE);
	assert_int_equal(copies_lost(rig.copies), COPIES_MESSAGES_MAX + 3);
	pass(LOOK_MS);
	look_reply("a", &lags);
	writes_expect(2);
	assert_int_equal(copies_lost(rig.copies), COPIES_MESSAGES_MAX + 3);
	assert_int_equal(unsafe(), COPIES_MESSAGES_MAX + 3);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	writes_expect(2);
	assert_int_equal(copies_lost(rig.copies), 0);
	assert_int_equal(unsafe(), 0);
	/* What it has, and they do not, is not safe by a look that begins then. */
	pass(LOOK_MS);
	look_reply("a", &lags);
	assert_int_equal(copies_unsafe(rig.copies, rig.now_ms, NULL, NULL),
			 COPIES_MESSAGES_MAX + 3);
	assert_int_equal(unsafe(), 0);
}

/* Only the batches behind the last number that Redis has. */
static void test_the_tail_that_a_replica_lacks(void **state)
{
	static const struct copies_look promoted = { 1, 0, 1, 2, 0 };

	(void)state;
	for (int i = 1; i <= 4; i++)
		accept(1, i, i);
	pass(LOOK_MS);
	look_reply("b", &promoted);
	assert_int_equal(rig.written_n, 2);
	assert_true(rig.written[0].seq == 3 && rig.written[1].seq == 4);
	write_reply(COPIES_WRITTEN);
}

static void test_asked_at_once_where_redis_may_have_lost_data(void **state)
{
	(void)state;
	accept(1, 1, 1);
	accept(2, 1, 1);
	pass(1);
	looks_expect(0);
	submit(1, 2);
	admission_flush(rig.admission);
	call_state(CALL_UNVERIFIED);
	pass(1);
	looks_expect(1);
	assert_true(rig.looked_id == 1);
	look_reply("a", &covered);
	admission_report_begin(rig.admission);
	pass(0);
	looks_expect(2);
	for (size_t i = 0; i < 2; i++)
		copies_looked(rig.copies, rig.looked[i], "a", &covered);
	rig.looked_n = 0;
	/* A report during a look begins another one. */
	pass(LOOK_MS);
	looks_expect(2);
	admission_report_begin(rig.admission);
	for (size_t i = 0; i < 2; i++)
		copies_looked(rig.copies, rig.looked[i], "a", &covered);
	rig.looked_n = 0;
	pass(0);
	looks_expect(2);
	for (size_t i = 0; i < 2; i++)
		copies_looked(rig.copies, rig.looked[i], "a", &covered);
	rig.looked_n = 0;
}

static void test_what_a_process_that_ends_has_alone(void **state)
{
	int64_t stop_ms;

	(void)state;
	accept(1, 1, 1);
	assert_int_equal(unsafe(), 1); /* it has not been looked at */
	pass(LOOK_MS);
	look_reply("a", &covered);
	assert_int_equal(unsafe(), 0);
	accept(1, 2, 2);
	assert_int_equal(unsafe(), 1);
	rig.now_ms++;
	stop_ms = rig.now_ms;
	assert_int_equal(copies_unsafe(rig.copies, stop_ms, NULL, NULL), 2);
	copies_hurry(rig.copies);
	pass(0);
	look_reply("a", &absent);
	assert_int_equal(copies_unsafe(rig.copies, stop_ms, NULL, NULL), 2);
	pass(COPIES_HURRY_MS);
	look_reply("a", &rebuilt);
	assert_int_equal(copies_unsafe(rig.copies, stop_ms, NULL, NULL), 2);
	write_reply(COPIES_FAILED);
	assert_int_equal(copies_unsafe(rig.copies, stop_ms, NULL, NULL), 2);
	pass(COPIES_HURRY_MS);
	look_reply("a", &rebuilt);
	write_reply(COPIES_WRITTEN);
	assert_int_equal(copies_unsafe(rig.copies, stop_ms, NULL, NULL), 0);
	batches_confirm();
	assert_int_equal(unsafe(), 0);
}

/* A batch whose receives Redis accepts while it is asked was not there when it replied. */
static void test_one_that_is_accepted_during_a_look(void **state)
{
	(void)state;
	accept(1, 1, 1);
	pass(LOOK_MS);
	accept(1, 2, 2);
	look_reply("a", &behind);
	assert_int_equal(rig.written_n, 1);
	assert_true(rig.written[0].seq == 1);
	write_reply(COPIES_WRITTEN);
	assert_int_equal(unsafe(), 1);
	pass(LOOK_MS);
	look_reply("a", &behind);
	assert_true(rig.written[0].seq == 2);
	write_reply(COPIES_WRITTEN);
	assert_int_equal(unsafe(), 0);
}

static void test_confirmed_while_redis_is_asked_or_told(void **state)
{
	(void)state;
	accept(1, 1, 1);
	pass(LOOK_MS);
	batches_confirm();
	for (int i = 0; i < COUPONS_MAX + 4; i++) { /* the coupon is not forgotten meanwhile */
		accept(10 + i, 1, 1);
		batches_confirm();
	}
	look_reply("a", &rebuilt);
	writes_expect(0);
	accept(1, 2, 2);
	pass(LOOK_MS);
	look_reply("a", &rebuilt);
	writes_expect(1);
	batches_confirm();
	assert_int_equal(copies_lost(rig.copies), 0);
	write_reply(COPIES_FAILED);
	assert_int_equal(copies_lost(rig.copies), 0);
	pass(10 * LOOK_MS);
	looks_expect(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_redis_is_asked_after_a_second),
		TEST(test_what_is_lost_is_written_again),
		TEST(test_once_for_each_filling_and_process),
		TEST(test_again_while_redis_refuses_or_has_no_coupon),
		TEST(test_in_pieces),
		TEST(test_in_pieces_of_so_many_bytes),
		TEST(test_so_many_coupons_are_asked_for_at_once),
		TEST(test_while_its_replicas_lag),
		TEST(test_the_tail_that_a_replica_lacks),
		TEST(test_asked_at_once_where_redis_may_have_lost_data),
		TEST(test_what_a_process_that_ends_has_alone),
		TEST(test_one_that_is_accepted_during_a_look),
		TEST(test_confirmed_while_redis_is_asked_or_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
