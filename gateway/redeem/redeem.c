#include "gateway/redeem/redeem.h"

#include "codes/text.h"
#include "common/check.h"
#include "common/clock.h"
#include "gateway/listen/reply.h"
#include "gateway/metrics.h"
#include "gateway/read/row.h"
#include "gateway/redeem/attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USERS_MAX 65536 /* with wrong codes, that one process remembers */
#define TEXTS_MAX 256   /* in one look-up */
#define MESSAGE_SIZE 160

struct redeem {
	struct admission *admission;
	struct lookup *lookup;
	struct catalogue *catalogue;
	struct attempts *attempts;
	struct request_list arrived; /* CATALOGUE_TEXTS_MAX of them are decided together */
	size_t arrived_n;
	size_t waiting_max;
	size_t waiting_n;
	struct request_list waiting; /* for a look-up of their texts */
	struct request_list asked;   /* in the look-up that is under way */
};

struct redeem *redeem_new(const struct config *config, struct lookup *lookup,
			  struct admission *admission)
{
	const struct attempts_limits limits = { .free_max = config->code_attempts,
						.wrong_max = config->code_wrong_max,
						.users_max = USERS_MAX };
	struct redeem *redeem = calloc(1, sizeof(*redeem));

	check(redeem != NULL);
	redeem->admission = admission;
	redeem->lookup = lookup;
	redeem->catalogue = catalogue_new(lookup, config->code_keys);
	redeem->attempts = attempts_new(&limits);
	redeem->waiting_max = (size_t)config->lookups_max;
	STAILQ_INIT(&redeem->arrived);
	STAILQ_INIT(&redeem->waiting);
	STAILQ_INIT(&redeem->asked);
	return redeem;
}

void redeem_free(struct redeem *redeem)
{
	if (!redeem)
		return;
	catalogue_free(redeem->catalogue);
	attempts_free(redeem->attempts);
	free(redeem);
}

static void hold_back(struct request *request, int64_t wait_ms)
{
	char message[MESSAGE_SIZE];
	cJSON *object = cJSON_CreateObject();

	check(object != NULL);
	metrics_add(METRIC_CODES_HELD_BACK, 1);
	snprintf(message, sizeof(message),
		 "too many wrong codes: no code is looked at for %lld ms; nothing was done",
		 (long long)wait_ms);
	cJSON_AddNumberToObject(object, "retry_after_ms", (double)wait_ms);
	cJSON_AddStringToObject(object, "message", message);
	request_answer_object(request, ANSWER_BUSY, NULL, object);
}

/* Of a text that PostgreSQL did not have either. */
static size_t form_of(const struct redeem *redeem, const struct request *request)
{
	const struct code_text text = { .text = request_code(request), .len = request->code_len };
	struct catalogue_found found;

	catalogue_find(redeem->catalogue, &text, 1, &found);
	return found.form;
}

static void refuse(struct redeem *redeem, struct request *request, size_t form)
{
	const struct result result = { .answer = ANSWER_CODE_INVALID };

	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_wrong(redeem->attempts, &request->user, form, clock_monotonic_ms());
	request_answer(request, &result);
}

void redeem_answered(struct redeem *redeem, const struct request *request, enum answer answer)
{
	if (request->op != OP_REDEEM || answer != ANSWER_CODE_INVALID)
		return;
	metrics_add(METRIC_CODES_WRONG, 1);
	attempts_wrong(redeem->attempts, &request->user, 0, clock_monotonic_ms());
}

static void submit(struct redeem *redeem, struct request *request,
		   const struct catalogue_code *code)
{
	request->coupon = code->coupon;
	request_code_set(request, code->code);
	admission_submit(redeem->admission, request);
}

static void waiting_send(struct redeem *redeem);

static long row_ord(const PGresult *rows, int row)
{
	return strtol(column_text(rows, row, "ord"), NULL, 10);
}

static void submit_row(struct redeem *redeem, struct request *request, const PGresult *rows,
		       int row)
{
	int is_word = strcmp(column_text(rows, row, "kind"), "word") == 0;
	struct catalogue_code code;

	code.coupon = strtoll(column_text(rows, row, "coupon_id"), NULL, 10);
	snprintf(code.code, sizeof(code.code), "%s%s%s", column_text(rows, row, "set_id"),
		 is_word ? "" : ".", is_word ? "" : column_text(rows, row, "serial"));
	submit(redeem, request, &code);
}

static void on_texts(void *context, const PGresult *rows)
{
	struct redeem *redeem = context;
	struct request_list asked = STAILQ_HEAD_INITIALIZER(asked);
	struct request *request;
	int row = 0;

	STAILQ_CONCAT(&asked, &redeem->asked);
	for (int ord = 1; (request = STAILQ_FIRST(&asked)); ord++) {
		STAILQ_REMOVE_HEAD(&asked, next);
		if (!rows)
			request_fail(request, ANSWER_UNAVAILABLE,
				     "PostgreSQL is unreachable: the code cannot be looked up");
		else if (row < PQntuples(rows) && row_ord(rows, row) == ord)
			submit_row(redeem, request, rows, row++);
		else
			refuse(redeem, request, form_of(redeem, request));
	}
	waiting_send(redeem);
}

/* Looks up what waits, unless a look-up is under way: then it goes with the next one. */
static void waiting_send(struct redeem *redeem)
{
	static char spelled[TEXTS_MAX][CODE_OTHERS_SIZE];
	const char *texts[TEXTS_MAX];
	struct request *request;
	size_t n = 0;

	if (!STAILQ_EMPTY(&redeem->asked))
		return;
	while (n < TEXTS_MAX && (request = STAILQ_FIRST(&redeem->waiting))) {
		STAILQ_REMOVE_HEAD(&redeem->waiting, next);
		redeem->waiting_n--;
		check(code_text_spell(request_code(request), request->code_len, spelled[n]) == 0);
		texts[n] = spelled[n];
		n++;
		STAILQ_INSERT_TAIL(&redeem->asked, request, next);
	}
	if (n == 0 || lookup_code_texts(redeem->lookup, texts, n, on_texts, redeem) == 0)
		return;
	while ((request = STAILQ_FIRST(&redeem->asked))) {
		STAILQ_REMOVE_HEAD(&redeem->asked, next);
		request_fail(request, ANSWER_BUSY, NULL);
	}
}

static void look_up(struct redeem *redeem, struct request *request)
{
	if (redeem->waiting_n >= redeem->waiting_max) {
		request_fail(request, ANSWER_BUSY, NULL);
		return;
	}
	redeem->waiting_n++;
	STAILQ_INSERT_TAIL(&redeem->waiting, request, next);
	waiting_send(redeem);
}

static void decide(struct redeem *redeem, struct request *request,
		   const struct catalogue_found *found)
{
	int64_t wait_ms = attempts_wait_ms(redeem->attempts, &request->user, found->form,
					   clock_monotonic_ms());

	if (wait_ms > 0) {
		hold_back(request, wait_ms);
		return;
	}
	switch (found->kind) {
	case CATALOGUE_CODE:
		submit(redeem, request, &found->code);
		return;
	case CATALOGUE_MAYBE:
		look_up(redeem, request);
		return;
	case CATALOGUE_NONE:
		refuse(redeem, request, found->form);
		return;
	}
}

static void arrived_decide(struct redeem *redeem)
{
	struct request_list arrived = STAILQ_HEAD_INITIALIZER(arrived);
	struct code_text texts[CATALOGUE_TEXTS_MAX] = { 0 };
	struct catalogue_found found[CATALOGUE_TEXTS_MAX];
	struct request *request;
	size_t n = 0;

	STAILQ_CONCAT(&arrived, &redeem->arrived);
	redeem->arrived_n = 0;
	STAILQ_FOREACH (request, &arrived, next)
		texts[n++] = (struct code_text){ .text = request_code(request),
						 .len = request->code_len };
	catalogue_find(redeem->catalogue, texts, n, found);
	for (size_t i = 0; i < n; i++) {
		request = STAILQ_FIRST(&arrived);
		STAILQ_REMOVE_HEAD(&arrived, next);
		decide(redeem, request, &found[i]);
	}
}

void redeem_flush(struct redeem *redeem)
{
	if (redeem->arrived_n > 0)
		arrived_decide(redeem);
}

void redeem_submit(struct redeem *redeem, struct request *request)
{
	if (!catalogue_is_loaded(redeem->catalogue)) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "the sets of exchange codes are not loaded from PostgreSQL yet");
		return;
	}
	STAILQ_INSERT_TAIL(&redeem->arrived, request, next);
	if (++redeem->arrived_n == CATALOGUE_TEXTS_MAX)
		arrived_decide(redeem);
}

void redeem_tick(struct redeem *redeem, int64_t now_ms)
{
	catalogue_tick(redeem->catalogue, now_ms);
}

void redeem_warnings(const struct redeem *redeem, cJSON *array)
{
	catalogue_warnings(redeem->catalogue, array);
}
