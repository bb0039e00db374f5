#include "gateway/read/coupons_answer.h"

#include "common/check.h"
#include "gateway/listen/reply.h"
#include "gateway/read/row.h"

#include <stdlib.h>

#define PAGE_BYTES 131072 /* of the rows of a page, so that clients can read it in time */
#define ROW_BYTES 256     /* the names of the members, and the user */

/* How long a row is in a reply, about: what its bytes are escaped by is not counted. */
static size_t row_bytes(const PGresult *rows, int row)
{
	size_t bytes = ROW_BYTES;

	for (int column = 0; column < PQnfields(rows); column++)
		bytes += (size_t)PQgetlength(rows, row, column);
	return bytes;
}

/* How many rows the page has. With long metadata fewer than the client wants, but always one. */
static int page_rows(const PGresult *rows, int limit)
{
	int n = 0, rows_n = PQntuples(rows);
	size_t bytes = 0;

	while (n < rows_n && n < limit) {
		bytes += row_bytes(rows, n);
		if (n > 0 && bytes > PAGE_BYTES)
			break;
		n++;
	}
	return n;
}

static void coupon_add(cJSON *coupons, const struct user_id *user, const PGresult *rows, int row)
{
	cJSON *object = cJSON_CreateObject();
	struct receive receive;

	check(object != NULL);
	row_receive(rows, row, column_number(rows, row, "coupon_id"), user, &receive);
	cJSON_AddStringToObject(object, "coupon", column_text(rows, row, "coupon_id"));
	member_column(object, rows, row, "name");
	member_receive(object, &receive, (int)column_number(rows, row, "slot"));
	member_column(object, rows, row, "received_at");
	member_column(object, rows, row, "valid_from");
	member_column(object, rows, row, "valid_to");
	member_offer(object, rows, row);
	if (*PQgetvalue(rows, row, PQfnumber(rows, "is_voided")) == 't')
		check(cJSON_AddTrueToObject(object, "voided"));
	cJSON_AddItemToArray(coupons, object);
}

/* That of the page after this row. */
static void cursor_add(cJSON *object, const struct user_id *user, const PGresult *rows, int row)
{
	const struct coupon_cursor cursor = {
		.at_us = column_number(rows, row, "received_us"),
		.coupon = column_number(rows, row, "coupon_id"),
		.slot = (int)column_number(rows, row, "slot"),
	};
	char text[COUPON_CURSOR_SIZE];

	cJSON_AddStringToObject(object, "cursor", coupon_cursor_format(&cursor, user, text));
}

static void on_rows(void *context, const PGresult *rows)
{
	struct request *request = context;
	int n;
	cJSON *object, *coupons;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the coupons cannot be looked up");
		return;
	}
	object = cJSON_CreateObject();
	check(object != NULL);
	cJSON_AddStringToObject(object, "user", request->user.text);
	coupons = cJSON_AddArrayToObject(object, "coupons");
	n = page_rows(rows, request->page.limit);
	for (int row = 0; row < n; row++)
		coupon_add(coupons, &request->user, rows, row);
	if (PQntuples(rows) > n)
		cursor_add(object, &request->user, rows, n - 1);
	request_answer_object(request, ANSWER_OK, NULL, object);
}

void coupons_answer(struct lookup *reads, struct request *request)
{
	const struct request_page *page = &request->page;

	/* One more than the page: whether there is a next one. */
	if (lookup_user_coupons(reads, &request->user, page->is_next ? &page->after : NULL,
				page->limit + 1, on_rows, request))
		request_fail(request, ANSWER_BUSY, NULL);
}
