#include "gateway/read/row.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

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

/* The text of a number or of an object, with all its digits. */
static void member_raw(cJSON *object, const PGresult *rows, int row, const char *name)
{
	if (!PQgetisnull(rows, row, PQfnumber(rows, name)))
		check(cJSON_AddRawToObject(object, name, column_text(rows, row, name)));
}

void member_offer(cJSON *object, const PGresult *rows, int row)
{
	cJSON *discount = cJSON_CreateObject();

	check(discount != NULL);
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
