#include "rush/tally.h"

#include "common/array.h"
#include "common/message/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *rush_array_new(size_t n, size_t size)
{
	return checked(calloc(n ? n : 1, size));
}

void rush_requests_init(struct rush_requests *requests, const struct rush_plan *plan)
{
	*requests = (struct rush_requests){
		.plan = plan,
		.list = rush_array_new(plan->requests_n, sizeof(*requests->list)),
		.ends[RUSH_NOT_SENT] = plan->requests_n,
	};
	for (uint32_t i = 0; i < plan->requests_n; i++)
		requests->list[i].end = RUSH_NOT_SENT;
}

void rush_requests_fini(struct rush_requests *requests)
{
	free(requests->list);
	free(requests->told.list);
}

static void end_set(struct rush_requests *requests, uint32_t request, int end)
{
	requests->ends[requests->list[request].end]--;
	requests->list[request].end = (uint8_t)end;
	requests->ends[end]++;
}

uint32_t rush_requests_send(struct rush_requests *requests, uint16_t connection, int64_t due_us,
			    int64_t now_us)
{
	uint32_t request = requests->next++;

	check(request < requests->plan->requests_n);
	end_set(requests, request, RUSH_OPEN);
	requests->list[request].connection = connection;
	requests->list[request].time_us = due_us;
	requests->list[request].sent_ms = (uint32_t)(now_us / 1000);
	return request;
}

void rush_requests_strange(struct rush_requests *requests, const char *line, size_t len)
{
	if (requests->strange++ == 0)
		snprintf(requests->strange_first, sizeof(requests->strange_first), "%.*s",
			 len > 250 ? 250 : (int)len, line);
}

void rush_receives_add(struct rush_receives *receives, const struct rush_receive *receive)
{
	receives->list = array_room(receives->list, receives->n, &receives->size, sizeof(*receive));
	receives->list[receives->n++] = *receive;
}

void rush_requests_doubt(struct rush_requests *requests, uint32_t request)
{
	requests->doubted += requests->list[request].doubts == 0;
	if (requests->list[request].doubts < UINT8_MAX)
		requests->list[request].doubts++;
}

static void first_open_move(struct rush_requests *requests)
{
	while (requests->first_open < requests->next &&
	       requests->list[requests->first_open].end != RUSH_OPEN)
		requests->first_open++;
}

int rush_requests_answer(struct rush_requests *requests, const struct client_reply *reply,
			 int64_t now_us)
{
	const struct rush_plan *plan = requests->plan;
	uint32_t request = (uint32_t)reply->request, user, coupon;
	int is_unknown = reply->code == answer_code(ANSWER_UNKNOWN);
	struct receive named;
	struct user_id id;

	if (reply->request < 0 || reply->request >= requests->next ||
	    answer_from_code(reply->code) == ANSWER_COUNT)
		return RUSH_WRONG;
	if (requests->list[request].end == RUSH_LATE || requests->list[request].end == RUSH_LOST) {
		requests->overdue++;
		return RUSH_NONE;
	}
	if (requests->list[request].end != RUSH_OPEN)
		return RUSH_WRONG;

	/* If it was accepted, the answer names a receive, which must be one of this request. */
	if (reply->code == answer_code(ANSWER_OK) || reply->code == answer_code(ANSWER_REJECTED) ||
	    (is_unknown && reply->receive)) {
		user = rush_plan_user(plan, request);
		coupon = rush_plan_coupon(plan, user);
		id = rush_users_id(&plan->users, user);
		if (!reply->receive ||
		    receive_parse(&named, reply->receive, strlen(reply->receive)) ||
		    named.coupon != plan->coupons.list[coupon] || !user_id_same(&named.user, &id))
			return RUSH_WRONG;
		rush_receives_add(&requests->told,
				  &(struct rush_receive){ .user = user,
							  .coupon = coupon,
							  .batch = named.batch,
							  .index = (int16_t)named.index,
							  .code = (int16_t)reply->code });
	}
	if (is_unknown)
		rush_requests_doubt(requests, request);
	end_set(requests, request, reply->code);
	requests->list[request].time_us = now_us - requests->list[request].time_us;
	requests->answered_last_us = now_us;
	first_open_move(requests);
	return requests->list[request].connection;
}

void rush_requests_end(struct rush_requests *requests, uint32_t request, enum rush_end end)
{
	end_set(requests, request, end);
	first_open_move(requests);
}

void rush_requests_lost(struct rush_requests *requests, uint16_t connection)
{
	for (uint32_t i = requests->first_open; i < requests->next; i++) {
		if (requests->list[i].end != RUSH_OPEN ||
		    requests->list[i].connection != connection)
			continue;
		rush_requests_doubt(requests, i);
		end_set(requests, i, RUSH_LOST);
	}
	first_open_move(requests);
}

int64_t rush_requests_deadline_us(struct rush_requests *requests)
{
	first_open_move(requests);
	if (requests->first_open == requests->next)
		return INT64_MAX;
	return (int64_t)requests->list[requests->first_open].sent_ms * 1000 +
	       requests->plan->timeout_us;
}

int rush_requests_expire(struct rush_requests *requests, int64_t now_us)
{
	uint32_t request;

	if (rush_requests_deadline_us(requests) > now_us)
		return RUSH_NONE;
	request = requests->first_open;
	rush_requests_doubt(requests, request);
	end_set(requests, request, RUSH_LATE);
	return requests->list[request].connection;
}

uint32_t rush_requests_answered(const struct rush_requests *requests)
{
	uint32_t n = 0;

	for (int code = 0; code < RUSH_CODES_MAX; code++)
		n += requests->ends[code];
	return n;
}

int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad)
{
	size_t rank = (n * (size_t)permyriad + 9999) / 10000;

	return rank > 0 ? sorted[rank - 1] : 0;
}

int64_t *rush_requests_times_us(const struct rush_requests *requests, int code, size_t *n)
{
	int64_t *times_us = rush_array_new(requests->next, sizeof(*times_us));

	*n = 0;
	for (uint32_t i = 0; i < requests->next; i++)
		if (requests->list[i].end < RUSH_CODES_MAX &&
		    (code == RUSH_ENDS || requests->list[i].end == code))
			times_us[(*n)++] = requests->list[i].time_us;
	qsort(times_us, *n, sizeof(*times_us), number_compare);
	return times_us;
}

static int receive_compare(const void *a, const void *b)
{
	const struct rush_receive *x = a, *y = b;
	int order;

	if (x->user != y->user)
		return x->user < y->user ? -1 : 1;
	if (x->coupon != y->coupon)
		return x->coupon < y->coupon ? -1 : 1;
	order = memcmp(x->batch.bytes, y->batch.bytes, sizeof(x->batch.bytes));
	return order ? order : (x->index > y->index) - (x->index < y->index);
}

void rush_receives_sort(struct rush_receives *receives)
{
	if (receives->n > 1)
		qsort(receives->list, receives->n, sizeof(*receives->list), receive_compare);
}

/* Moves `*at` behind all receives up to `receive`. Returns how many were equal to it. */
static size_t equal_take(const struct rush_receives *receives, size_t *at,
			 const struct rush_receive *receive)
{
	size_t equal = 0;

	while (*at < receives->n && receive_compare(&receives->list[*at], receive) < 0)
		(*at)++;
	while (*at < receives->n && receive_compare(&receives->list[*at], receive) == 0) {
		(*at)++;
		equal++;
	}
	return equal;
}

int64_t rush_receives_new(const struct rush_receives *told, const struct rush_receives *before,
			  int64_t *of_coupons)
{
	size_t at = 0;
	int64_t new = 0;

	for (size_t i = 0; i < told->n; i++) {
		const struct rush_receive *one = &told->list[i];

		if ((i > 0 && receive_compare(one - 1, one) == 0) ||
		    equal_take(before, &at, one) > 0)
			continue;
		of_coupons[one->coupon]++;
		new ++;
	}
	return new;
}

void rush_tally_note(struct rush_tally *tally, const char *format, ...)
{
	va_list list;

	if (tally->wrong_n == RUSH_WRONG_MAX)
		return;
	va_start(list, format);
	vsnprintf(tally->wrong[tally->wrong_n++], RUSH_WRONG_SIZE, format, list);
	va_end(list);
}

static void wrong_add(struct rush_tally *tally, const struct rush_requests *requests,
		      const struct rush_receive *receive, const char *what)
{
	const struct rush_plan *plan = requests->plan;
	struct receive full = {
		.coupon = plan->coupons.list[receive->coupon],
		.user = rush_users_id(&plan->users, receive->user),
		.batch = receive->batch,
		.index = receive->index,
	};
	char text[RECEIVE_SIZE];

	receive_format(&full, text);
	rush_tally_note(tally, "%s: %s", text, what);
}

/* Judges each receive that answers name, some of them several times. */
static void told_walk(struct rush_tally *tally, const struct rush_requests *requests,
		      const struct rush_receives *rows, const struct rush_receives *rejections)
{
	const struct rush_receives *told = &requests->told;
	size_t row = 0, rejection = 0, next;
	int64_t kept = -1; /* the last user with a receive that was not rejected */

	for (size_t i = 0; i < told->n; i = next) {
		const struct rush_receive *one = &told->list[i];
		size_t rows_n = equal_take(rows, &row, one),
		       rejections_n = equal_take(rejections, &rejection, one);
		int issued_told = 0, rejected_told = 0;

		for (next = i; next < told->n && receive_compare(one, &told->list[next]) == 0;
		     next++) {
			issued_told |= told->list[next].code == answer_code(ANSWER_OK) &&
				       requests->plan->ack == RUSH_ISSUED;
			rejected_told |= told->list[next].code == answer_code(ANSWER_REJECTED);
		}
		tally->told++;
		tally->issued += rows_n > 0;
		tally->rejected += rejections_n > 0;
		if (rows_n + rejections_n == 0) {
			tally->lost++;
			wrong_add(tally, requests, one,
				  "accepted, but neither issued nor rejected");
		}
		if (rows_n > 0 && rejections_n > 0) {
			tally->both++;
			wrong_add(tally, requests, one, "issued and rejected");
		}
		if (rows_n > 1 || (next - i > 1 && !rush_plan_repeats(requests->plan))) {
			tally->twice++;
			wrong_add(tally, requests, one,
				  rows_n > 1 ? "issued twice" : "answered to two requests");
		}
		if ((issued_told && rows_n == 0 && rejections_n > 0) ||
		    (rejected_told && rows_n > 0)) {
			tally->other++;
			wrong_add(tally, requests, one,
				  rows_n ? "answered as rejected, but issued"
					 : "answered as issued, but rejected");
		}

		if (!rush_plan_repeats(requests->plan) || rejections_n > 0)
			continue; /* a rejection frees key and code with the slot */
		if (kept == one->user) {
			tally->unkept++;
			wrong_add(tally, requests, one, "another receive for the same key or code");
		}
		kept = one->user;
	}
}

/*
 * Outcomes that are neither answered nor from before need an unknown answer. `once`: a user has one
 * of them at most, however many of its answers are unknown.
 */
static void strays_walk(struct rush_tally *tally, const struct rush_requests *requests,
			const struct rush_receives *before, const struct rush_receives *outcomes,
			uint16_t *unknown, int once)
{
	const struct rush_receive *kept = NULL;
	size_t told_at = 0, before_at = 0;
	int kept_told = 0;

	for (size_t i = 0; i < outcomes->n; i++) {
		const struct rush_receive *one = &outcomes->list[i];
		int is_other = one->coupon != rush_plan_coupon(requests->plan, one->user);
		uint16_t *left = &unknown[one->user];
		int is_told, is_old, is_second;

		/* A duplicate: equal_take() has moved behind its receive. */
		if (i > 0 && receive_compare(&outcomes->list[i - 1], one) == 0)
			continue;
		is_told = equal_take(&requests->told, &told_at, one) > 0;
		is_old = equal_take(before, &before_at, one) > 0;
		/*
		 * The rows of a user come in their order. Another receive for the key or code of
		 * the row before it is wrong; if both were told, told_walk() has found it.
		 */
		if (once && !is_old && !is_other) {
			is_second = kept && kept->user == one->user && !(kept_told && is_told);
			kept = one;
			kept_told = is_told;
			if (is_second) {
				tally->unkept++;
				wrong_add(tally, requests, one,
					  "another receive for the same key or code");
				continue;
			}
		}
		if (is_told || is_old)
			continue;
		if (*left > 0 && !is_other) {
			(*left)--;
			tally->from_unknown++;
			continue;
		}
		tally->stray++;
		wrong_add(tally, requests, one,
			  is_other ? "of a coupon that the user did not request"
				   : "an outcome that no answer explains");
	}
}

void rush_tally(struct rush_tally *tally, const struct rush_requests *requests,
		const struct rush_receives *before, const struct rush_receives *rows,
		const struct rush_receives *rejections)
{
	const struct rush_receives *told = &requests->told;
	/* How many outcomes of each of the plan's users an unknown answer explains. */
	uint16_t *unknown = rush_array_new(requests->plan->users.n, sizeof(*unknown));

	for (uint32_t i = 0; i < requests->next; i++) {
		uint16_t *count = &unknown[rush_plan_user(requests->plan, i)];
		unsigned sum = *count + requests->list[i].doubts;

		*count = sum < UINT16_MAX ? (uint16_t)sum : UINT16_MAX;
	}
	for (size_t i = 0; i < told->n; i++)
		if (told->list[i].code == answer_code(ANSWER_UNKNOWN))
			unknown[told->list[i].user]--;

	memset(tally, 0, sizeof(*tally));
	told_walk(tally, requests, rows, rejections);
	strays_walk(tally, requests, before, rows, unknown, rush_plan_repeats(requests->plan));
	strays_walk(tally, requests, before, rejections, unknown, 0);
	free(unknown);
}

int64_t rush_tally_wrong(const struct rush_tally *tally)
{
	return tally->lost + tally->both + tally->twice + tally->other + tally->unkept +
	       tally->stray;
}
