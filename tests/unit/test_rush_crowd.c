/*
 * The users of an open loop: when they come, give up and press again, what is counted, and what
 * they send.
 */
#include "rush/crowd.h"

#include "gateway/listen/http_request.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01JD8Z6Q4T1M0V5K9X3B7C2N8R"
#define USERS 40
#define SLOTS 4
#define GIVE_UP_US 2000000
#define BUSY 20

struct fixture {
	struct rush_plan plan;
	struct rush_requests requests;
	struct rush_crowd crowd;
	int64_t due_us[USERS];
};

static int setup(void **state)
{
	static struct fixture f;
	struct rush_arrivals arrivals;

	memset(&f, 0, sizeof(f));
	f.plan = (struct rush_plan){
		.users = { .n = USERS, .first = 10 },
		.requests_per_user = 1,
		.requests_n = USERS,
		.keys = 1,
		.rate = 2,
		.connections_n = SLOTS,
		.open = { .duration_us = 20000000, .give_up_us = GIVE_UP_US, .retries = 2 },
	};
	rush_coupons_add(&f.plan.coupons, 1001);
	rush_arrivals_init(&arrivals, &f.plan);
	for (int i = 0; i < USERS; i++)
		f.due_us[i] = rush_arrivals_next(&arrivals);
	rush_requests_init(&f.requests, &f.plan);
	rush_crowd_init(&f.crowd, &f.requests);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rush_crowd_fini(&f->crowd);
	rush_requests_fini(&f->requests);
	rush_plan_fini(&f->plan);
	return 0;
}

/* Another plan, of the same users. */
static void plan_change(struct fixture *f, uint32_t retries, enum rush_pause pause, uint32_t users)
{
	f->plan.open.retries = retries;
	f->plan.open.pause = pause;
	f->plan.users.n = f->plan.requests_n = users;
	rush_crowd_fini(&f->crowd);
	rush_requests_fini(&f->requests);
	rush_requests_init(&f->requests, &f->plan);
	rush_crowd_init(&f->crowd, &f->requests);
}

/* The answer to the user in this slot. */
static int answer(struct fixture *f, uint32_t slot, int code, int64_t now_us)
{
	char receive[100];
	struct client_reply reply = { .request = f->crowd.slots[slot].user, .code = code };

	snprintf(receive, sizeof(receive), "1001.%u." BATCH ".1", 10 + f->crowd.slots[slot].user);
	reply.receive = code == 0 ? receive : NULL;
	return rush_crowd_answer(&f->crowd, slot, &reply, now_us);
}

/* Starts the next, whose user must be this one, and sends its request. Returns the slot. */
static uint32_t start(struct fixture *f, uint32_t user, int64_t now_us)
{
	int slot = rush_crowd_start(&f->crowd, now_us);

	assert_true(slot >= 0 && slot < SLOTS);
	assert_int_equal(f->crowd.slots[slot].user, user);
	f->crowd.slots[slot].is_sent = 1;
	return (uint32_t)slot;
}

static void nobody_starts(struct fixture *f, int64_t now_us)
{
	assert_int_equal(rush_crowd_start(&f->crowd, now_us), RUSH_NONE);
}

#define SECONDS 100
#define RATE 1000

static void test_schedule(void **state)
{
	struct rush_plan plan = { .rate = RATE };
	struct rush_arrivals one, same, other;
	int64_t at_us = 0, before_us = 0;
	int n = 0, long_n = 0, equal = 0;

	(void)state;
	rush_arrivals_init(&one, &plan);
	rush_arrivals_init(&same, &plan);
	plan.users.seed = 1;
	rush_arrivals_init(&other, &plan);
	for (; (at_us = rush_arrivals_next(&one)) < SECONDS * 1000000; n++) {
		assert_true(at_us >= before_us);
		assert_int_equal(rush_arrivals_next(&same), at_us);
		equal += rush_arrivals_next(&other) == at_us;
		long_n += at_us - before_us > 1000000 / RATE;
		before_us = at_us;
	}
	/* Their number has a standard deviation of 316; of gaps above the mean there are 1 / e. */
	assert_in_range(n, SECONDS * RATE - 1500, SECONDS * RATE + 1500);
	assert_in_range(1000 * long_n / n, 360, 376);
	assert_true(equal < 10);
}

/* The time of an answer begins when its user was due, however late it was started. */
static void test_time_from_the_schedule(void **state)
{
	struct fixture *f = *state;
	int64_t now_us = f->due_us[0], *times_us;
	uint32_t slot;
	size_t n;

	assert_int_equal(rush_crowd_wake_us(&f->crowd), now_us);
	nobody_starts(f, now_us - 1);
	slot = start(f, 0, now_us);
	assert_int_equal(answer(f, slot, 0, now_us + 300), 0);
	now_us = f->due_us[1] + 70000;
	slot = start(f, 1, now_us);
	assert_int_equal(answer(f, slot, 0, now_us + 1000), 0);
	times_us = rush_requests_times_us(&f->requests, RUSH_ENDS, &n);
	assert_int_equal(n, 2);
	assert_int_equal(times_us[0], 300);
	assert_int_equal(times_us[1], 71000);
	assert_int_equal(rush_percentile(times_us, n, 5000), 300);
	assert_int_equal(rush_percentile(times_us, n, 9900), 71000);
	free(times_us);
	assert_int_equal(f->crowd.good, 2);
	assert_int_equal(f->crowd.answered_at[0], 2);
	assert_int_equal(f->requests.doubted, 0);
}

/* One user presses at once, until it has tried three times. */
static void test_gives_up_and_presses_again(void **state)
{
	struct fixture *f = *state;
	int64_t now_us;

	plan_change(f, 2, RUSH_PAUSE_NONE, 1);
	now_us = f->due_us[0];
	for (int attempt = 0; attempt < 3; attempt++) {
		uint32_t slot = start(f, 0, now_us);

		assert_int_equal(f->requests.ends[RUSH_OPEN], 1);
		assert_int_equal(rush_crowd_wake_us(&f->crowd), now_us + GIVE_UP_US);
		now_us += GIVE_UP_US;
		assert_int_equal(rush_crowd_expire(&f->crowd, now_us - 1), RUSH_NONE);
		assert_int_equal(rush_crowd_expire(&f->crowd, now_us), slot);
		assert_int_equal(rush_crowd_expire(&f->crowd, now_us), RUSH_NONE);
	}
	nobody_starts(f, now_us);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->requests.ends[RUSH_LATE], 1);
	assert_int_equal(f->requests.list[0].doubts, 3);
	assert_int_equal(f->requests.doubted, 1);
	assert_int_equal(f->crowd.gave_up, 3);
	assert_int_equal(f->crowd.attempts, 3);
	assert_int_equal(f->crowd.started, 1);
	assert_int_equal(f->crowd.good, 0);
}

/* The answer to a later attempt counts from the first; what came before stays in doubt. */
static void test_answered_at_the_second_attempt(void **state)
{
	struct fixture *f = *state;
	int64_t now_us;
	uint32_t slot;

	plan_change(f, 2, RUSH_PAUSE_NONE, 1);
	now_us = f->due_us[0] + GIVE_UP_US;
	start(f, 0, f->due_us[0]);
	rush_crowd_expire(&f->crowd, now_us);
	slot = start(f, 0, now_us);
	assert_int_equal(answer(f, slot, 2, now_us + 500), 0);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->requests.ends[2], 1);
	assert_int_equal(f->requests.list[0].time_us, GIVE_UP_US + 500);
	assert_int_equal(f->requests.list[0].doubts, 1);
	assert_int_equal(f->crowd.answered_at[1], 1);
	assert_int_equal(f->crowd.good, 1);
}

/* Without a connection nothing was sent, and nothing can have been accepted. */
static void test_no_connection(void **state)
{
	struct fixture *f = *state;
	int64_t now_us;

	plan_change(f, 2, RUSH_PAUSE_NONE, 1);
	now_us = f->due_us[0];
	assert_int_equal(rush_crowd_start(&f->crowd, now_us), 0);
	rush_crowd_lost(&f->crowd, 0, ECONNREFUSED, now_us);
	assert_int_equal(rush_crowd_start(&f->crowd, now_us), 0);
	rush_crowd_lost(&f->crowd, 0, EADDRNOTAVAIL, now_us);
	assert_int_equal(rush_crowd_start(&f->crowd, now_us), 0);
	assert_int_equal(rush_crowd_expire(&f->crowd, now_us + GIVE_UP_US), 0);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->crowd.refused, 1);
	assert_int_equal(f->crowd.no_room, 1);
	assert_int_equal(f->crowd.gave_up_connecting, 1);
	assert_int_equal(f->requests.ends[RUSH_UNCONNECTED], 1);
	assert_int_equal(f->requests.doubted, 0);
	plan_change(f, 0, RUSH_PAUSE_NONE, 1);
	assert_int_equal(rush_crowd_start(&f->crowd, now_us), 0);
	rush_crowd_lost(&f->crowd, 0, ECONNREFUSED, now_us);
	assert_int_equal(f->requests.ends[RUSH_UNCONNECTED], 1);
}

static void test_lost(void **state)
{
	struct fixture *f = *state;
	int64_t now_us;

	plan_change(f, 0, RUSH_PAUSE_NONE, 1);
	now_us = f->due_us[0];
	rush_crowd_lost(&f->crowd, start(f, 0, now_us), ECONNRESET, now_us);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->crowd.lost, 1);
	assert_int_equal(f->requests.ends[RUSH_LOST], 1);
	assert_int_equal(f->requests.doubted, 1);
}

static void test_answers(void **state)
{
	struct fixture *f = *state;
	int64_t now_us = f->due_us[2];
	uint32_t slots[3];
	struct client_reply reply = { .request = 2, .code = BUSY };

	for (uint32_t i = 0; i < 3; i++)
		slots[i] = start(f, i, f->due_us[i]);
	/* A reply about another user's request, and a decision about no request, are wrong. */
	assert_int_equal(rush_crowd_answer(&f->crowd, slots[0], &reply, now_us), RUSH_WRONG);
	reply = (struct client_reply){ .request = -1, .code = 2 };
	assert_int_equal(rush_crowd_answer(&f->crowd, slots[0], &reply, now_us), RUSH_WRONG);
	/* A connection that the gateway refuses. */
	reply = (struct client_reply){ .request = -1, .code = BUSY };
	assert_int_equal(rush_crowd_answer(&f->crowd, slots[0], &reply, now_us), 0);
	assert_int_equal(answer(f, slots[1], BUSY, now_us), 0);
	assert_int_equal(answer(f, slots[2], 22, now_us), 0);
	assert_int_equal(f->requests.ends[BUSY], 2);
	assert_int_equal(f->requests.ends[22], 1);
	assert_int_equal(f->requests.doubted, 1);
	assert_int_equal(f->crowd.good, 0);
	assert_int_equal(f->crowd.seconds[now_us / 1000000].refused, 3);
	/* A user that has an answer does not press again. */
	start(f, 3, f->due_us[3]);
}

/* Its user has gone: it is as if no answer had come. */
static void test_late_answer(void **state)
{
	struct fixture *f = *state;
	uint32_t slot;

	plan_change(f, 0, RUSH_PAUSE_NONE, 1);
	slot = start(f, 0, f->due_us[0]);
	assert_int_equal(answer(f, slot, 0, f->due_us[0] + GIVE_UP_US), RUSH_NONE);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->requests.ends[RUSH_LATE], 1);
	assert_int_equal(f->requests.told.n, 0);
	assert_int_equal(f->crowd.gave_up, 1);
}

/* A user that finds no free slot waits, but no longer than it would for an answer. */
static void test_slots(void **state)
{
	struct fixture *f = *state;
	int64_t now_us = f->due_us[SLOTS];
	uint32_t slots[SLOTS], taken;

	plan_change(f, 1, RUSH_PAUSE_NONE, SLOTS + 2);
	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i] = start(f, i, f->due_us[i]);
	nobody_starts(f, now_us);
	assert_int_equal(f->crowd.open_most, SLOTS);
	assert_int_equal(answer(f, slots[1], 0, now_us), 0);
	taken = start(f, SLOTS, now_us);
	assert_int_equal(taken, slots[1]);
	nobody_starts(f, f->due_us[SLOTS + 1]);
	assert_int_equal(f->requests.next, SLOTS + 1);
	nobody_starts(f, f->due_us[SLOTS + 1] + RUSH_START_LATE_US - 1);
	assert_int_equal(f->requests.next, SLOTS + 1);
	nobody_starts(f, f->due_us[SLOTS + 1] + RUSH_START_LATE_US);
	assert_int_equal(f->requests.next, SLOTS + 2);
	assert_int_equal(f->requests.ends[RUSH_NOT_SENT], 1);
	assert_int_equal(f->crowd.started, SLOTS + 1);
	/*
	 * When a second attempt was not started, the first attempt tells how the user's request
	 * ended.
	 */
	rush_crowd_lost(&f->crowd, slots[0], ECONNRESET, now_us);
	nobody_starts(f, now_us + GIVE_UP_US);
	assert_int_equal(f->requests.ends[RUSH_LOST], 1);
}

/* Users in slots expire in the order in which they were due, whoever ends in between. */
static void test_expire_in_order(void **state)
{
	struct fixture *f = *state;
	uint32_t slots[SLOTS];

	plan_change(f, 0, RUSH_PAUSE_NONE, SLOTS);
	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i] = start(f, i, f->due_us[i]);
	answer(f, slots[1], 0, f->due_us[SLOTS - 1]);
	assert_int_equal(rush_crowd_expire(&f->crowd, f->due_us[0] + GIVE_UP_US), slots[0]);
	assert_int_equal(rush_crowd_expire(&f->crowd, f->due_us[2] + GIVE_UP_US), slots[2]);
	answer(f, slots[3], 0, f->due_us[3]);
	assert_int_equal(rush_crowd_expire(&f->crowd, INT64_MAX / 2), RUSH_NONE);
	assert_true(rush_crowd_is_over(&f->crowd));
}

/* Fails each attempt at once. The pauses between them. */
static void pauses_are(struct fixture *f, enum rush_pause pause, int64_t first_us,
		       int64_t second_us)
{
	int64_t pauses[2] = { first_us, second_us }, now_us = f->due_us[0];

	plan_change(f, 2, pause, 1);
	for (int i = 0; i < 2; i++) {
		rush_crowd_lost(&f->crowd, start(f, 0, now_us), 0, now_us);
		nobody_starts(f, now_us + pauses[i] - 1);
		now_us += pauses[i];
		assert_int_equal(rush_crowd_wake_us(&f->crowd), now_us);
	}
	answer(f, start(f, 0, now_us), 0, now_us);
	assert_true(rush_crowd_is_over(&f->crowd));
}

static void test_pauses(void **state)
{
	pauses_are(*state, RUSH_PAUSE_NONE, 0, 0);
	pauses_are(*state, RUSH_PAUSE_FIXED, 1000000, 1000000);
	pauses_are(*state, RUSH_PAUSE_EXPONENTIAL, 1000000, 2000000);
}

/* Nobody comes or presses any more; who is in a slot may still be answered. */
static void test_stop(void **state)
{
	struct fixture *f = *state;
	int64_t now_us = f->due_us[2];
	uint32_t slots[3];

	plan_change(f, 2, RUSH_PAUSE_FIXED, USERS);
	for (uint32_t i = 0; i < 3; i++)
		slots[i] = start(f, i, f->due_us[i]);
	rush_crowd_lost(&f->crowd, slots[0], 0, now_us);
	rush_crowd_stop(&f->crowd);
	nobody_starts(f, f->due_us[USERS - 1]);
	assert_int_equal(f->requests.ends[RUSH_LOST], 1);
	assert_false(rush_crowd_is_over(&f->crowd));
	answer(f, slots[1], 0, now_us);
	rush_crowd_expire(&f->crowd, now_us + GIVE_UP_US);
	assert_true(rush_crowd_is_over(&f->crowd));
	assert_int_equal(f->requests.ends[RUSH_LATE], 1);
	assert_int_equal(f->requests.ends[RUSH_NOT_SENT], USERS - 3);
}

/* One step of a history, chosen at random. */
static void random_step(struct fixture *f, uint32_t slot, int64_t now_us)
{
	if (rand() % 2)
		f->crowd.slots[slot].is_sent = 1;
	switch (rand() % 4) {
	case 0:
		assert_int_not_equal(answer(f, slot, rand() % 2 ? 2 : BUSY, now_us), RUSH_WRONG);
		break;
	case 1:
		rush_crowd_lost(&f->crowd, slot, ECONNRESET, now_us);
		break;
	}
}

/* Whatever happens, each user ends once, each attempt is counted once, and no slot is lost. */
static void test_random_histories(void **state)
{
	struct fixture *f = *state;

	for (unsigned seed = 1; seed <= 200; seed++) {
		struct rush_crowd *crowd = &f->crowd;
		int64_t now_us = 0, answers = 0, seconds_good = 0, unanswered = 0;
		int slot;

		srand(seed);
		plan_change(f, seed % 4, (enum rush_pause)(rand() % 3), USERS);
		while (!rush_crowd_is_over(crowd)) {
			int64_t wake_us = rush_crowd_wake_us(crowd);

			now_us = wake_us > now_us ? wake_us : now_us;
			now_us += rand() % 4 ? 0 : rand() % 3000000;
			while (rush_crowd_expire(crowd, now_us) >= 0)
				;
			while ((slot = rush_crowd_start(crowd, now_us)) >= 0)
				random_step(f, (uint32_t)slot, now_us);
		}
		assert_int_equal(crowd->free_n, SLOTS);
		assert_int_equal(crowd->oldest, crowd->newest);
		assert_int_equal(f->requests.ends[RUSH_OPEN], 0);
		for (uint32_t i = 0; i < crowd->seconds_n; i++) {
			seconds_good += crowd->seconds[i].good;
			unanswered += crowd->seconds[i].unanswered;
		}
		for (int i = 0; i <= RUSH_RETRIES_MAX; i++)
			answers += crowd->answered_at[i];
		assert_int_equal(answers, rush_requests_answered(&f->requests));
		assert_int_equal(crowd->good, seconds_good);
		assert_int_equal(crowd->attempts, answers + unanswered);
		assert_int_equal(unanswered, crowd->gave_up + crowd->gave_up_connecting +
						     crowd->refused + crowd->lost + crowd->no_room);
		assert_int_equal(crowd->started + f->requests.ends[RUSH_NOT_SENT], USERS);
	}
}

/* The gateway reads what is sent over HTTP as the same request as the line. */
static void test_http(void **state)
{
	struct fixture *f = *state;
	char out[RUSH_HTTP_MAX + 270], host[256], fields[270], line[RUSH_LINE_MAX], *body;
	struct http_request request;
	size_t len;

	memset(host, 'h', sizeof(host) - 1);
	host[sizeof(host) - 1] = '\0';
	f->plan.users = (struct rush_users){ .n = 1, .form = RUSH_UUID, .seeded = 1, .seed = 7 };
	f->plan.coupons.list[0] = INT64_MAX;
	f->plan.ack = RUSH_ACCEPTED + 1;
	snprintf(fields, sizeof(fields), "Host: %s\r\n", host);
	len = rush_plan_http(&f->plan, 0, fields, out);
	assert_true(len <= sizeof(out));
	http_request_init(&request, 1000);
	assert_int_equal(http_request_feed(&request, out, len), len);
	assert_true(request.complete);
	assert_true(http_request_is_json(&request));
	assert_string_equal(request.texts[TEXT_TARGET].bytes, "/v1/issue");
	assert_string_equal(request.texts[TEXT_HOST].bytes, host);
	line[rush_plan_line(&f->plan, 0, line) - 1] = '\0';
	body = request.texts[TEXT_BODY].bytes;
	assert_memory_equal(line, "{\"id\":0,\"op\":\"issue\",", 21);
	assert_memory_equal(body, "{\"id\":0,", 8);
	assert_string_equal(body + 8, line + 21);
	http_request_free(&request, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_schedule),
		cmocka_unit_test_setup_teardown(test_time_from_the_schedule, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gives_up_and_presses_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answered_at_the_second_attempt, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_no_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expire_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pauses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_histories, setup, teardown),
		cmocka_unit_test_setup_teardown(test_http, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
