#include "rush/book.h"

#include "common/message/answer.h"
#include "common/check.h"
#include "common/message/receive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *array_new(size_t n, size_t size)
{
	void *array = calloc(n ? n : 1, size);

	check(array != NULL);
	return array;
}

void rush_book_init(struct rush_book *book, const struct rush_plan *plan)
{
	size_t n = plan->requests_n;

	memset(book, 0, sizeof(*book));
	book->plan = plan;
	book->end = array_new(n, sizeof(*book->end));
	memset(book->end, RUSH_NOT_SENT, n);
	book->connection = array_new(n, sizeof(*book->connection));
	book->time_us = array_new(n, sizeof(*book->time_us));
	book->sent_ms = array_new(n, sizeof(*book->sent_ms));
	book->ends[RUSH_NOT_SENT] = plan->requests_n;
}

void rush_book_fini(struct rush_book *book)
{
	free(book->end);
	free(book->connection);
	free(book->time_us);
	free(book->sent_ms);
	free(book->told);
	memset(book, 0, sizeof(*book));
}

static void end_set(struct rush_book *book, uint32_t request, int end)
{
	book->ends[book->end[request]]--;
	book->end[request] = (uint8_t)end;
	book->ends[end]++;
}

uint32_t rush_book_send(struct rush_book *book, uint16_t connection, int64_t due_us, int64_t now_us)
{
	uint32_t request = book->next++;

	check(request < book->plan->requests_n);
	end_set(book, request, RUSH_OPEN);
	book->connection[request] = connection;
	book->time_us[request] = due_us;
	book->sent_ms[request] = (uint32_t)(now_us / 1000);
	return request;
}

void rush_book_strange(struct rush_book *book, const char *line, size_t len)
{
	if (book->strange++ == 0)
		snprintf(book->strange_first, sizeof(book->strange_first), "%.*s",
			 len > 250 ? 250 : (int)len, line);
}

static struct rush_told *told_add(struct rush_book *book)
{
	if (book->told_n == book->told_size) {
		size_t size = book->told_size ? book->told_size * 2 : 4096;

		book->told = realloc(book->told, size * sizeof(*book->told));
		check(book->told != NULL);
		book->told_size = size;
	}
	return &book->told[book->told_n++];
}

/* <coupon>.<user>.<batch>.<index> of this request. 0, or -1. */
static int told_read(struct rush_told *told, const struct rush_plan *plan, uint32_t request,
		     const struct client_reply *reply)
{
	uint32_t i = rush_plan_user(plan, request);
	struct user_id user = rush_users_id(&plan->users, i);
	const struct rush_coupon *coupon = &plan->coupons.list[rush_plan_coupon(plan, i)];
	char start[ID_SIZE + USER_ID_SIZE + 2];
	size_t len = coupon->len;
	const char *p = reply->receive;
	int index = 0;

	memcpy(start, coupon->text, len);
	start[len++] = '.';
	memcpy(start + len, user.text, user.len);
	len += user.len;
	start[len++] = '.';
	if (reply->receive_len < len + ULID_LEN + 2 || reply->receive_len > len + ULID_LEN + 4 ||
	    memcmp(p, start, len) != 0 || p[len + ULID_LEN] != '.')
		return -1;
	for (size_t at = len + ULID_LEN + 1; at < reply->receive_len; at++) {
		if (p[at] < '0' || p[at] > '9')
			return -1;
		index = index * 10 + (p[at] - '0');
	}
	if (index > RECEIVE_INDEX_MAX)
		return -1;
	told->request = request;
	told->code = (uint8_t)reply->code;
	told->index = (uint8_t)index;
	memcpy(told->batch, p + len, ULID_LEN);
	return 0;
}

static void first_open_move(struct rush_book *book)
{
	while (book->first_open < book->next && book->end[book->first_open] != RUSH_OPEN)
		book->first_open++;
}

/* Whether the answer means that the request was accepted. */
static int names_receive(const struct client_reply *reply)
{
	return reply->code == answer_code(ANSWER_OK) ||
	       reply->code == answer_code(ANSWER_REJECTED) ||
	       (reply->code == answer_code(ANSWER_UNKNOWN) && reply->receive);
}

int rush_book_answer(struct rush_book *book, const struct client_reply *reply, int64_t now_us)
{
	uint32_t request = (uint32_t)reply->request;
	struct rush_told told;

	if (reply->request < 0 || reply->request >= book->next ||
	    answer_from_code(reply->code) == ANSWER_COUNT)
		return RUSH_WRONG;
	if (book->end[request] == RUSH_LATE || book->end[request] == RUSH_LOST) {
		book->overdue++;
		return RUSH_NONE;
	}
	if (book->end[request] != RUSH_OPEN)
		return RUSH_WRONG;
	if (names_receive(reply)) {
		if (!reply->receive || told_read(&told, book->plan, request, reply))
			return RUSH_WRONG;
		*told_add(book) = told;
	}
	end_set(book, request, reply->code);
	book->time_us[request] = now_us - book->time_us[request];
	book->answered_last_us = now_us;
	first_open_move(book);
	return book->connection[request];
}

uint32_t rush_book_lost(struct rush_book *book, uint16_t connection)
{
	uint32_t lost = 0;

	for (uint32_t i = book->first_open; i < book->next; i++) {
		if (book->end[i] != RUSH_OPEN || book->connection[i] != connection)
			continue;
		end_set(book, i, RUSH_LOST);
		lost++;
	}
	first_open_move(book);
	return lost;
}

int64_t rush_book_deadline_us(struct rush_book *book)
{
	first_open_move(book);
	if (book->first_open == book->next)
		return INT64_MAX;
	return (int64_t)book->sent_ms[book->first_open] * 1000 + book->plan->timeout_us;
}

int rush_book_expire(struct rush_book *book, int64_t now_us)
{
	uint32_t request;

	if (rush_book_deadline_us(book) > now_us)
		return RUSH_NONE;
	request = book->first_open;
	end_set(book, request, RUSH_LATE);
	return book->connection[request];
}

uint32_t rush_book_open(const struct rush_book *book)
{
	return book->ends[RUSH_OPEN];
}

uint32_t rush_book_answered(const struct rush_book *book)
{
	uint32_t n = 0;

	for (int code = 0; code < RUSH_CODES_MAX; code++)
		n += book->ends[code];
	return n;
}

uint32_t rush_book_unknown(const struct rush_book *book)
{
	return book->ends[answer_code(ANSWER_UNKNOWN)] + book->ends[RUSH_LOST] +
	       book->ends[RUSH_LATE];
}

int rush_book_is_unknown(const struct rush_book *book, uint32_t request)
{
	int end = book->end[request];

	return end == answer_code(ANSWER_UNKNOWN) || end == RUSH_LOST || end == RUSH_LATE;
}

int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad)
{
	size_t rank = (n * (size_t)permyriad + 9999) / 10000;

	if (n == 0)
		return 0;
	return sorted[rank > 0 ? rank - 1 : 0];
}

static int number_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void rush_book_latency(const struct rush_book *book, int code, struct rush_latency *latency)
{
	int64_t *times_us = malloc((book->next ? book->next : 1) * sizeof(*times_us));
	size_t n = 0;

	check(times_us != NULL);
	for (uint32_t i = 0; i < book->next; i++)
		if (book->end[i] < RUSH_CODES_MAX && (code == RUSH_ENDS || book->end[i] == code))
			times_us[n++] = book->time_us[i];
	qsort(times_us, n, sizeof(*times_us), number_compare);
	latency->n = n;
	latency->p50_us = rush_percentile(times_us, n, 5000);
	latency->p90_us = rush_percentile(times_us, n, 9000);
	latency->p99_us = rush_percentile(times_us, n, 9900);
	latency->p999_us = rush_percentile(times_us, n, 9990);
	latency->max_us = rush_percentile(times_us, n, 10000);
	free(times_us);
}
