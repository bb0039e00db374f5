#include "gateway/read/coupons.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/hash.h"
#include "gateway/listen/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define DISCOUNTS_MAX 4096      /* coupons that are remembered */
#define DISCOUNTS_KEEP_MS 10000 /* then one is read again, in case PostgreSQL was put back */
#define DISCOUNTS_AGAIN_MS 1000 /* as long as PostgreSQL does not have the version, or failed */

struct discount {
	int64_t id; /* the coupon's */
	UT_hash_handle hh;
	int64_t version; /* the terms that the members show; 0: they were never read */
	cJSON *members;
	int64_t asked_for; /* version, by the last look-up */
	int has_failed;    /* it did */
	int64_t ended_ms;  /* when it ended */
	int is_asked;      /* a look-up is in progress: the discount is not forgotten */
	STAILQ_HEAD(, discount_asker) askers;
};

int row_of_coupon(const PGresult *rows, int64_t coupon)
{
	int column = PQfnumber(rows, "id");

	for (int row = 0; row < PQntuples(rows); row++)
		if (strtoll(PQgetvalue(rows, row, column), NULL, 10) == coupon)
			return row;
	return -1;
}

void row_receive(const PGresult *rows, int row, int64_t coupon, const struct user_id *user,
		 struct receive *receive)
{
	receive->coupon = coupon;
	receive->user = *user;
	receive->index = atoi(column_text(rows, row, "idx"));
	if (ulid_from_uuid(&receive->batch, column_text(rows, row, "batch")))
		memset(&receive->batch, 0, sizeof(receive->batch));
}

void member_column(cJSON *object, const PGresult *rows, int row, const char *name)
{
	int column = PQfnumber(rows, name);

	if (column >= 0 && !PQgetisnull(rows, row, column))
		cJSON_AddStringToObject(object, name, PQgetvalue(rows, row, column));
}

void member_raw(cJSON *object, const PGresult *rows, int row, const char *name)
{
	if (!PQgetisnull(rows, row, PQfnumber(rows, name)))
		check(cJSON_AddRawToObject(object, name, column_text(rows, row, name)));
}

void member_time(cJSON *object, const char *name, int64_t ms)
{
	char text[CLOCK_RFC3339_SIZE];

	if (ms > 0)
		cJSON_AddStringToObject(object, name, clock_rfc3339(ms, text));
}

void member_discount(cJSON *object, const PGresult *rows, int row)
{
	cJSON *discount = checked(cJSON_CreateObject());

	member_raw(discount, rows, row, "amount_off");
	member_raw(discount, rows, row, "percent_off");
	member_raw(discount, rows, row, "cap");
	member_raw(discount, rows, row, "threshold");
	member_column(discount, rows, row, "currency");
	if (discount->child)
		cJSON_AddItemToObject(object, "discount", discount);
	else
		cJSON_Delete(discount);
	member_raw(object, rows, row, "metadata");
}

void member_receive(cJSON *object, const struct receive *receive, int slot)
{
	char text[RECEIVE_SIZE];

	receive_format(receive, text);
	cJSON_AddStringToObject(object, "receive", text);
	cJSON_AddNumberToObject(object, "slot", slot);
}

/* Members of an older version are shown if they are all that PostgreSQL has, not if it failed. */
static const cJSON *members_known(const struct discount *discount, int64_t version)
{
	return discount->version >= version || !discount->has_failed ? discount->members : NULL;
}

static void discount_read(struct discount *discount, const PGresult *rows)
{
	discount->ended_ms = clock_monotonic_ms();
	discount->has_failed = !rows || PQntuples(rows) == 0;
	if (discount->has_failed)
		return;
	cJSON_Delete(discount->members);
	discount->members = checked(cJSON_CreateObject());
	discount->version = column_number(rows, 0, "version");
	member_discount(discount->members, rows, 0);
}

static void on_discount_row(void *context, const PGresult *rows)
{
	struct discount *discount = context;
	struct discount_asker *asker;

	discount_read(discount, rows);
	while ((asker = STAILQ_FIRST(&discount->askers))) {
		STAILQ_REMOVE_HEAD(&discount->askers, next);
		asker->done(asker->context, members_known(discount, asker->version));
	}
	discount->is_asked = 0; /* from here on it may be forgotten */
}

void discount_members_add(cJSON *reply, const cJSON *members)
{
	const cJSON *member;

	cJSON_ArrayForEach(member, members)
		cJSON_AddItemToObject(reply, member->string, cJSON_Duplicate(member, 1));
	if (!members)
		check(cJSON_AddTrueToObject(reply, "partial"));
}

void discounts_ask(struct discounts *discounts, int64_t coupon, struct discount_asker *asker)
{
	struct discount *discount;
	int64_t after_ms;
	int had_failed;

	HASH_FIND(hh, discounts->by_id, &coupon, sizeof(coupon), discount);
	if (discount) {
		HASH_DEL(discounts->by_id, discount);
	} else {
		/* The first is the least recently used: it is forgotten for a new one. */
		if (HASH_COUNT(discounts->by_id) >= DISCOUNTS_MAX) {
			discount = discounts->by_id;
			if (discount->is_asked) {
				asker->done(asker->context, NULL);
				return;
			}
			HASH_DEL(discounts->by_id, discount);
			cJSON_Delete(discount->members);
			free(discount);
		}
		discount = checked(calloc(1, sizeof(*discount)));
		discount->id = coupon;
		STAILQ_INIT(&discount->askers);
	}
	HASH_ADD(hh, discounts->by_id, id, sizeof(discount->id), discount);
	had_failed = discount->has_failed;

	/* PostgreSQL is asked for that version, or whether there is another one. */
	after_ms = discount->version < asker->version ? DISCOUNTS_AGAIN_MS : DISCOUNTS_KEEP_MS;
	if (!discount->is_asked && (discount->asked_for < asker->version ||
				    clock_monotonic_ms() - discount->ended_ms >= after_ms)) {
		discount->asked_for = asker->version;
		if (lookup_ask(discounts->reads, LOOKUP_DISCOUNT,
			       POSTGRES_ARGUMENTS(postgres_number(coupon)), on_discount_row,
			       discount))
			discount_read(discount, NULL);
		else
			discount->is_asked = 1;
	}

	if (discount->is_asked && discount->version < asker->version && !had_failed)
		STAILQ_INSERT_TAIL(&discount->askers, asker, next);
	else
		asker->done(asker->context, members_known(discount, asker->version));
}

#define PAGE_BYTES 131072 /* rows of a page: so clients can read it in time */
#define ROW_BYTES 256     /* the names of the members, and the user */

static void on_page(void *context, const PGresult *rows)
{
	struct request *request = context;
	cJSON *object, *coupons;
	size_t bytes = 0;
	int n;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the coupons cannot be looked up");
		return;
	}
	object = checked(cJSON_CreateObject());
	cJSON_AddStringToObject(object, "user", request->user.text);
	coupons = cJSON_AddArrayToObject(object, "coupons");

	/*
	 * With long metadata the page has fewer rows than the client wants, but always one. What
	 * their bytes are escaped by is not counted.
	 */
	for (n = 0; n < PQntuples(rows) && n < request->page.limit; n++) {
		bytes += ROW_BYTES;
		for (int column = 0; column < PQnfields(rows); column++)
			bytes += (size_t)PQgetlength(rows, n, column);
		if (n > 0 && bytes > PAGE_BYTES)
			break;
	}

	for (int row = 0; row < n; row++) {
		int64_t coupon = column_number(rows, row, "coupon_id");
		struct receive receive;
		cJSON *member;

		if (!identity_has_coupon(&request->responder->identity, coupon))
			continue;
		member = checked(cJSON_CreateObject());
		row_receive(rows, row, coupon, &request->user, &receive);
		cJSON_AddStringToObject(member, "coupon", column_text(rows, row, "coupon_id"));
		member_column(member, rows, row, "name");
		member_receive(member, &receive, (int)column_number(rows, row, "slot"));
		member_column(member, rows, row, "received_at");
		member_column(member, rows, row, "valid_from");
		member_column(member, rows, row, "valid_to");
		member_discount(member, rows, row);
		if (*PQgetvalue(rows, row, PQfnumber(rows, "is_voided")) == 't')
			check(cJSON_AddTrueToObject(member, "voided"));
		member_raw(member, rows, row, "use");
		cJSON_AddItemToArray(coupons, member);
	}

	if (PQntuples(rows) > n) {
		const struct coupon_cursor next = {
			.at_us = column_number(rows, n - 1, "received_us"),
			.coupon = column_number(rows, n - 1, "coupon_id"),
			.slot = (int)column_number(rows, n - 1, "slot"),
		};
		char text[COUPON_CURSOR_SIZE];

		cJSON_AddStringToObject(object, "cursor",
					coupon_cursor_format(&next, &request->user, text));
	}
	request_answer_object(request, ANSWER_OK, NULL, object);
}

void coupons_answer(struct lookup *reads, struct request *request)
{
	const struct request_page *page = &request->page;
	const struct coupon_cursor *after = &page->after;
	const struct postgres_argument all = postgres_text(NULL);
	const struct postgres_argument arguments[] = {
		postgres_text(request->user.text),
		page->is_next ? postgres_number(after->at_us) : all,
		page->is_next ? postgres_number(after->coupon) : all,
		page->is_next ? postgres_number(after->slot) : all,
		postgres_number(page->limit + 1), /* whether there is a next page */
		postgres_number(page->is_usable),
	};

	if (lookup_ask(reads, LOOKUP_PAGE, 6, arguments, on_page, request))
		request_fail(request, ANSWER_BUSY, NULL);
}

#define CURRENCY_MESSAGE_SIZE 128

/* A number with all its digits. */
static void amount_add(cJSON *object, const char *name, int64_t amount)
{
	char text[NUMBER_SIZE];

	check(cJSON_AddRawToObject(object, name, number_text(amount, text)));
}

static void on_quote(void *context, const PGresult *rows)
{
	struct request *request = context;
	const struct use *use = &request->use->use;
	char coupon[ID_SIZE], message[CURRENCY_MESSAGE_SIZE];
	const char *currency;
	cJSON *object;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the terms cannot be looked up");
		return;
	}
	if (PQntuples(rows) == 0) {
		request_answer(request, &(struct result){ .answer = ANSWER_NOT_FOUND });
		return;
	}

	/* The coupon may have no currency. */
	currency = column_text(rows, 0, "currency");
	if (*currency && strcmp(currency, use->currency) != 0) {
		snprintf(message, sizeof(message),
			 "currency is \"%s\": must be that of coupon %lld, %s", use->currency,
			 (long long)request->coupon, currency);
		request_fail(request, ANSWER_BAD_REQUEST, message);
		return;
	}

	id_format(request->coupon, coupon);
	object = checked(cJSON_CreateObject());
	cJSON_AddStringToObject(object, "coupon", coupon);
	amount_add(object, "amount", use->amount);
	amount_add(object, "amount_off", column_number(rows, 0, "amount_off"));
	cJSON_AddStringToObject(object, "currency", use->currency);
	cJSON_AddBoolToObject(object, "usable", *column_text(rows, 0, "is_usable") == 't');
	request_answer_object(request, ANSWER_OK, NULL, object);
}

static void on_quote_user(void *context, const PGresult *rows)
{
	struct request *request = context;
	const struct use *use = &request->use->use;
	cJSON *object, *receives, *member;
	char id[ID_SIZE];
	int n = 0;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the coupons cannot be looked up");
		return;
	}
	object = checked(cJSON_CreateObject());
	cJSON_AddStringToObject(object, "user", request->user.text);
	amount_add(object, "amount", use->amount);
	cJSON_AddStringToObject(object, "currency", use->currency);
	receives = cJSON_AddArrayToObject(object, "receives");
	for (int row = 0; row < PQntuples(rows) && n < request->page.limit; row++) {
		int64_t coupon = column_number(rows, row, "coupon_id");
		struct receive receive;

		if (!identity_has_coupon(&request->responder->identity, coupon))
			continue;
		n++;
		id_format(coupon, id);
		row_receive(rows, row, coupon, &request->user, &receive);
		member = checked(cJSON_CreateObject());
		member_receive(member, &receive, (int)column_number(rows, row, "slot"));
		cJSON_AddStringToObject(member, "coupon", id);
		member_column(member, rows, row, "name");
		amount_add(member, "amount_off", column_number(rows, row, "amount_off"));
		cJSON_AddStringToObject(member, "currency", use->currency);
		member_column(member, rows, row, "valid_to");
		cJSON_AddItemToArray(receives, member);
	}
	request_answer_object(request, ANSWER_OK, NULL, object);
}

void quote_answer(struct lookup *reads, struct request *request)
{
	if (!request->coupon) {
		/* As many as a page has, of which the caller may not know some. */
		if (lookup_ask(reads, LOOKUP_QUOTE_USER,
			       POSTGRES_ARGUMENTS(postgres_text(request->user.text),
						  postgres_number(request->use->use.amount),
						  postgres_text(request->use->use.currency),
						  postgres_number(REQUEST_PAGE_MAX)),
			       on_quote_user, request))
			request_fail(request, ANSWER_BUSY, NULL);
		return;
	}
	if (lookup_ask(reads, LOOKUP_QUOTE,
		       POSTGRES_ARGUMENTS(postgres_number(request->coupon),
					  postgres_number(request->use->use.amount)),
		       on_quote, request))
		request_fail(request, ANSWER_BUSY, NULL);
}
