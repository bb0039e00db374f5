#include "gateway/use/quote.h"

#include "common/check.h"
#include "gateway/listen/request.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE_SIZE 128

/* The amount has another currency than the coupon, which may have none. */
static int is_foreign(const PGresult *rows, const struct use *use)
{
	const char *currency = column_text(rows, 0, "currency");

	return *currency && strcmp(currency, use->currency) != 0;
}

static void currency_refuse(struct request *request, const PGresult *rows)
{
	char message[MESSAGE_SIZE];

	snprintf(message, sizeof(message), "currency is \"%s\": must be that of coupon %lld, %s",
		 request->use->use.currency, (long long)request->coupon,
		 column_text(rows, 0, "currency"));
	request_fail(request, ANSWER_BAD_REQUEST, message);
}

/* With all its digits. */
static void amount_add(cJSON *object, const char *name, int64_t amount)
{
	char text[NUMBER_SIZE];

	check(cJSON_AddRawToObject(object, name, number_text(amount, text)));
}

static void on_quote(void *context, const PGresult *rows)
{
	struct request *request = context;
	const struct use *use = &request->use->use;
	const struct result not_found = { .answer = ANSWER_NOT_FOUND };
	char coupon[ID_SIZE];
	cJSON *object;

	if (!rows) {
		request_fail(request, ANSWER_UNAVAILABLE,
			     "PostgreSQL is unreachable: the terms cannot be looked up");
		return;
	}
	if (PQntuples(rows) == 0) {
		request_answer(request, &not_found);
		return;
	}
	if (is_foreign(rows, use)) {
		currency_refuse(request, rows);
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

void quote_answer(struct lookup *reads, struct request *request)
{
	if (lookup_ask(reads, LOOKUP_QUOTE,
		       POSTGRES_ARGUMENTS(postgres_number(request->coupon),
					  postgres_number(request->use->use.amount)),
		       on_quote, request))
		request_fail(request, ANSWER_BUSY, NULL);
}
