#include "gateway/claim/claim.h"

#include "common/check.h"
#include "common/clock.h"
#include "gateway/listen/request.h"
#include "gateway/metrics.h"
#include "gateway/claim/attempts.h"
#include "gateway/claim/catalogue.h"
#include "gateway/claim/fair_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 256  /* in one look-up */
#define TRIES_MAX 1024 /* requests that are tried at once: some may have to wait on */
#define MESSAGE_SIZE 160

_Static_assert(TEXTS_MAX < ATTEMPTS_TAKEN_MAX, "one more than those of the look-up under way");

/* A request that has taken from its budgets (attempts.h), until its code is judged. */
struct guess {
	struct request *request;
	size_t ticket; /* of its attempt */
};

struct claim {
	struct admission *admission;
	struct lookup *lookup;
	struct catalogue *catalogue;
	int64_t timeout_us;          /* a request that waits for longer is not looked up */
	struct request_list arrived; /* CATALOGUE_TEXTS_MAX of them are decided together */
	size_t arrived_n;
	struct fair_queue *waiting;    /* for a look-up, or for the end of other attempts */
	struct guess asked[TEXTS_MAX]; /* in the look-up that is under way */
	size_t asked_n;
};

struct claim *claim_new(const struct config *config, struct lookup *lookup,
			struct admission *admission)
{
	struct claim *claim = checked(calloc(1, sizeof(*claim)));

	claim->admission = admission;
	claim->lookup = lookup;
	claim->catalogue = catalogue_new(lookup, config->code_keys);
	claim->timeout_us = config->call_timeout_ms * 1000;
	/* never full: a retry whose receive is there is answered, as many as there are */
	claim->waiting = fair_queue_new((size_t)config->inflight_max);
	STAILQ_INIT(&claim->arrived);
	return claim;
}

static void hold_back(struct request *request, int64_t wait_ms)
{
	char message[MESSAGE_SIZE];

	metrics_add(METRIC_CODES_HELD_BACK, 1);
	snprintf(message, sizeof(message),
		 "too many wrong codes: no code is checked for %lld ms; nothing was done",
		 (long long)wait_ms);
	request_fail_wait(request, ANSWER_BUSY, wait_ms, message);
}

/* It was taken for, and is wrong. */
static void refuse(struct request *request, size_t ticket)
{
	const struct result result = { .answer = ANSWER_CODE_INVALID };

	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_end(ticket, request, clock_monotonic_us());
	request_answer(request, &result);
}

void claim_answered(const struct request *request, enum answer answer)
{
	if (request->op != OP_CLAIM || answer != ANSWER_CODE_INVALID)
		return;
	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_wrong(request, clock_monotonic_us());
}

static void wait(struct claim *claim, struct request *request)
{
	request = fair_queue_add(claim->waiting, request);
	if (request)
		request_fail(request, ANSWER_BUSY, NULL);
}

static void fail_by_lookup(struct request *request)
{
	request_fail(request, ANSWER_UNAVAILABLE,
		     "PostgreSQL is unreachable: the code cannot be looked up");
}

static struct code_text text_of(const struct request *request)
{
	return (struct code_text){ .text = request_code(request), .len = request->code_len };
}

/* A code of a coupon that is not for who asks is none: else it would be found by trying. */
static int is_for(const struct request *request, int64_t coupon)
{
	return identity_has_coupon(&request->responder->identity, coupon);
}

static struct catalogue_found found_for(const struct request *request,
					const struct catalogue_found *found)
{
	struct catalogue_found mine = *found;

	if (found->kind == CATALOGUE_CODE && !is_for(request, found->coupon))
		mine.kind = CATALOGUE_NONE;
	return mine;
}

static void submit(struct claim *claim, struct request *request, int64_t coupon, const char *code)
{
	request->coupon = coupon;
	request_code_set(request, code);
	admission_submit(claim->admission, request);
}

static void waiting_send(struct claim *claim);

static void on_texts(void *context, const PGresult *rows)
{
	struct claim *claim = context;
	size_t n = claim->asked_n;
	int row = 0;

	claim->asked_n = 0;
	for (size_t i = 0; i < n; i++) {
		const struct guess guess = claim->asked[i];
		struct request *request = guess.request;
		const char *state;
		int64_t coupon;

		if (!rows) {
			attempts_end(guess.ticket, NULL, clock_monotonic_us());
			fail_by_lookup(request);
			continue;
		}
		if (row >= PQntuples(rows) || column_number(rows, row, "ord") != (int64_t)i + 1) {
			refuse(request, guess.ticket);
			continue;
		}
		state = column_text(rows, row, "imported_as");
		coupon = column_number(rows, row, "coupon_id");
		if (!is_for(request, coupon) || strcmp(state, "revoked") == 0) {
			refuse(request, guess.ticket);
		} else {
			attempts_end(guess.ticket, NULL, clock_monotonic_us());
			/*
			 * What was used or revoked when it was imported Redis does not know, and
			 * nobody has a receive by it.
			 */
			if (strcmp(state, "used") == 0) {
				request->coupon = coupon;
				admission_refuse(claim->admission, request, ANSWER_CODE_USED);
			} else {
				submit(claim, request, coupon, column_text(rows, row, "code"));
			}
		}
		row++;
	}
	waiting_send(claim);
}

/*
 * Takes at most `*tries` from what waits, and counts them off; those that must wait on are put into
 * `again`. Those that have waited for too long fail together: else each look-up that takes as long
 * as it may would be followed by another one, for 256 of all that wait.
 */
static void waiting_take(struct claim *claim, struct request_list *again, size_t *tries)
{
	int64_t now_us = clock_monotonic_us();
	struct code_text texts[CATALOGUE_TEXTS_MAX] = { 0 };
	struct catalogue_found found[CATALOGUE_TEXTS_MAX];
	struct guess guesses[CATALOGUE_TEXTS_MAX];
	struct request *request;
	size_t n = 0;

	while (n < CATALOGUE_TEXTS_MAX && claim->asked_n + n<TEXTS_MAX && * tries> 0 &&
	       (request = fair_queue_take(claim->waiting))) {
		struct attempt attempt;

		if (now_us - request->begun_us > claim->timeout_us) {
			fail_by_lookup(request);
			continue;
		}
		--*tries;
		attempt = attempts_take(request, now_us);
		if (attempt.verdict == ATTEMPT_HELD) {
			hold_back(request, attempt.wait_ms);
		} else if (attempt.verdict == ATTEMPT_WAITS) {
			STAILQ_INSERT_TAIL(again, request, next);
		} else {
			texts[n] = text_of(request);
			guesses[n++] = (struct guess){ request, attempt.ticket };
		}
	}

	catalogue_find(claim->catalogue, texts, n, found);
	for (size_t i = 0; i < n; i++) {
		const struct catalogue_found mine = found_for(guesses[i].request, &found[i]);

		switch (mine.kind) {
		case CATALOGUE_CODE:
			attempts_end(guesses[i].ticket, NULL, clock_monotonic_us());
			submit(claim, guesses[i].request, mine.coupon, mine.code);
			break;
		case CATALOGUE_MAYBE:
			claim->asked[claim->asked_n++] = guesses[i];
			break;
		case CATALOGUE_NONE:
			refuse(guesses[i].request, guesses[i].ticket);
			break;
		}
	}
}

/* Looks up what waits, unless a look-up is under way: then it goes with the next one. */
static void waiting_send(struct claim *claim)
{
	struct request_list again = STAILQ_HEAD_INITIALIZER(again);
	char spelled[CODE_OTHERS_SIZE];
	struct postgres_array texts;
	struct request *request;
	size_t tries = TRIES_MAX;

	if (claim->asked_n > 0)
		return;
	while (claim->asked_n < TEXTS_MAX && tries > 0 && fair_queue_count(claim->waiting) > 0)
		waiting_take(claim, &again, &tries);
	while ((request = STAILQ_FIRST(&again))) {
		STAILQ_REMOVE_HEAD(&again, next);
		wait(claim, request);
	}
	if (claim->asked_n == 0)
		return;

	postgres_array_init(&texts, POSTGRES_TEXT);
	for (size_t i = 0; i < claim->asked_n; i++) {
		const struct code_text text = text_of(claim->asked[i].request);

		check(code_text_spell(text.text, text.len, spelled) == 0);
		postgres_array_add_text(&texts, spelled, strlen(spelled));
	}
	if (lookup_ask(claim->lookup, LOOKUP_CODE_TEXTS, POSTGRES_ARGUMENTS(postgres_array(&texts)),
		       on_texts, claim) == 0)
		return;
	while (claim->asked_n > 0) {
		const struct guess *guess = &claim->asked[--claim->asked_n];

		attempts_end(guess->ticket, NULL, clock_monotonic_us());
		request_fail(guess->request, ANSWER_BUSY, NULL);
	}
}

void claim_flush(struct claim *claim)
{
	struct request_list arrived = STAILQ_HEAD_INITIALIZER(arrived);
	struct code_text texts[CATALOGUE_TEXTS_MAX] = { 0 };
	struct catalogue_found found[CATALOGUE_TEXTS_MAX];
	struct request *request;
	size_t n = 0;

	if (claim->arrived_n == 0)
		return;
	STAILQ_CONCAT(&arrived, &claim->arrived);
	claim->arrived_n = 0;
	STAILQ_FOREACH (request, &arrived, next)
		texts[n++] = text_of(request);
	catalogue_find(claim->catalogue, texts, n, found);

	/*
	 * Right and wrong codes are held back and wait alike: else the time that an answer takes
	 * would tell about the code.
	 */
	for (size_t i = 0; i < n; i++) {
		struct catalogue_found mine;
		struct attempt attempt;

		request = STAILQ_FIRST(&arrived);
		STAILQ_REMOVE_HEAD(&arrived, next);
		mine = found_for(request, &found[i]);
		attempt = attempts_look(request, clock_monotonic_us());
		if (attempt.verdict == ATTEMPT_ALLOWED && mine.kind == CATALOGUE_NONE)
			attempt = attempts_take(request, clock_monotonic_us());
		if (attempt.verdict == ATTEMPT_HELD)
			hold_back(request, attempt.wait_ms);
		else if (attempt.verdict == ATTEMPT_WAITS || mine.kind == CATALOGUE_MAYBE)
			wait(claim, request);
		else if (mine.kind == CATALOGUE_NONE)
			refuse(request, attempt.ticket);
		else
			submit(claim, request, mine.coupon, mine.code);
	}
	waiting_send(claim);
}

size_t claim_waiting(const struct claim *claim)
{
	return fair_queue_count(claim->waiting) + claim->asked_n;
}

void claim_submit(struct claim *claim, struct request *request)
{
	if (!catalogue_is_loaded(claim->catalogue)) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "the sets of exchange codes are not loaded from PostgreSQL yet");
		return;
	}
	STAILQ_INSERT_TAIL(&claim->arrived, request, next);
	if (++claim->arrived_n == CATALOGUE_TEXTS_MAX)
		claim_flush(claim);
}

struct catalogue *claim_catalogue(struct claim *claim)
{
	return claim->catalogue;
}

void claim_tick(struct claim *claim, int64_t now_ms)
{
	catalogue_tick(claim->catalogue, now_ms);
	waiting_send(claim); /* other processes may have judged what it waits for */
}
