#include "gateway/read/row.h"

#include <stdlib.h>
#include <string.h>

const char *column_text(const PGresult *rows, int row, const char *name)
{
	return PQgetvalue(rows, row, PQfnumber(rows, name));
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

void member_receive(cJSON *object, const struct receive *receive, int slot)
{
	char text[RECEIVE_SIZE];

	receive_format(receive, text);
	cJSON_AddStringToObject(object, "receive", text);
	cJSON_AddNumberToObject(object, "slot", slot);
}
