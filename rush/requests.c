#include "rush/requests.h"

#include "common/message/answer.h"
#include "common/array.h"
#include "common/check.h"
#include "common/message/receive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *rush_array_new(size_t n, size_t size)
{
	void *array = calloc(n ? n : 1, size);

	check(array != NULL);
	return array;
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
	rush_receives_fini(&requests->told);
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
	if (receives->n == receives->size) {
		receives->size = receives->size ? receives->size * 2 : 4096;
		receives->list = realloc(receives->list, receives->size * sizeof(*receives->list));
		check(receives->list != NULL);
	}
	receives->list[receives->n++] = *receive;
}

void rush_receives_fini(struct rush_receives *receives)
{
	free(receives->list);
	memset(receives, 0, sizeof(*receives));
}

/* Adds the receive that the answer names. 0, or -1 unless it is one of this request. */
static int told_add(struct rush_requests *requests, uint32_t request,
		    const struct client_reply *reply)
{
	const struct rush_plan *plan = requests->plan;
	uint32_t user = rush_plan_user(plan, request), coupon = rush_plan_coupon(plan, user);
	struct user_id id = rush_users_id(&plan->users, user);
	struct receive named;

	if (!reply->receive || receive_parse(&named, reply->receive, reply->receive_len) ||
	    named.coupon != plan->coupons.list[coupon].id || !user_id_same(&named.user, &id))
		return -1;
	rush_receives_add(&requests->told, &(struct rush_receive){ .user = user,
								   .coupon = coupon,
								   .batch = named.batch,
								   .index = (int16_t)named.index,
								   .code = (int16_t)reply->code });
	return 0;
}

static void first_open_move(struct rush_requests *requests)
{
	while (requests->first_open < requests->next &&
	       requests->list[requests->first_open].end != RUSH_OPEN)
		requests->first_open++;
}

/* Whether the answer means that the request was accepted. */
static int names_receive(const struct client_reply *reply)
{
	return reply->code == answer_code(ANSWER_OK) ||
	       reply->code == answer_code(ANSWER_REJECTED) ||
	       (reply->code == answer_code(ANSWER_UNKNOWN) && reply->receive);
}

int rush_requests_answer(struct rush_requests *requests, const struct client_reply *reply,
			 int64_t now_us)
{
	uint32_t request = (uint32_t)reply->request;

	if (reply->request < 0 || reply->request >= requests->next ||
	    answer_from_code(reply->code) == ANSWER_COUNT)
		return RUSH_WRONG;
	if (requests->list[request].end == RUSH_LATE || requests->list[request].end == RUSH_LOST) {
		requests->overdue++;
		return RUSH_NONE;
	}
	if (requests->list[request].end != RUSH_OPEN)
		return RUSH_WRONG;
	if (names_receive(reply) && told_add(requests, request, reply))
		return RUSH_WRONG;
	end_set(requests, request, reply->code);
	requests->list[request].time_us = now_us - requests->list[request].time_us;
	requests->answered_last_us = now_us;
	first_open_move(requests);
	return requests->list[request].connection;
}

void rush_requests_lost(struct rush_requests *requests, uint16_t connection)
{
	for (uint32_t i = requests->first_open; i < requests->next; i++)
		if (requests->list[i].end == RUSH_OPEN &&
		    requests->list[i].connection == connection)
			end_set(requests, i, RUSH_LOST);
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

uint32_t rush_requests_unknown(const struct rush_requests *requests)
{
	return requests->ends[answer_code(ANSWER_UNKNOWN)] + requests->ends[RUSH_LOST] +
	       requests->ends[RUSH_LATE];
}

int rush_requests_is_unknown(const struct rush_requests *requests, uint32_t request)
{
	int end = requests->list[request].end;

	return end == answer_code(ANSWER_UNKNOWN) || end == RUSH_LOST || end == RUSH_LATE;
}

int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad)
{
	size_t rank = (n * (size_t)permyriad + 9999) / 10000;

	if (n == 0)
		return 0;
	return sorted[rank > 0 ? rank - 1 : 0];
}

void rush_requests_latency(const struct rush_requests *requests, int code,
			   struct rush_latency *latency)
{
	int64_t *times_us = malloc((requests->next ? requests->next : 1) * sizeof(*times_us));
	size_t n = 0;

	check(times_us != NULL);
	for (uint32_t i = 0; i < requests->next; i++)
		if (requests->list[i].end < RUSH_CODES_MAX &&
		    (code == RUSH_ENDS || requests->list[i].end == code))
			times_us[n++] = requests->list[i].time_us;
	qsort(times_us, n, sizeof(*times_us), number_compare);
	latency->n = n;
	latency->p50_us = rush_percentile(times_us, n, 5000);
	latency->p90_us = rush_percentile(times_us, n, 9000);
	latency->p99_us = rush_percentile(times_us, n, 9900);
	latency->p999_us = rush_percentile(times_us, n, 9990);
	latency->max_us = rush_percentile(times_us, n, 10000);
	free(times_us);
}
