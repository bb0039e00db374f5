/* The columns of a row, and members of a reply that are made of them. */
#ifndef GATEWAY_READ_ROW_H
#define GATEWAY_READ_ROW_H

#include "common/message/receive.h"
#include "common/postgres/session.h"

#include <cjson/cJSON.h>

/* The receive of a row with the columns batch and idx. */
void row_receive(const PGresult *rows, int row, int64_t coupon, const struct user_id *user,
		 struct receive *receive);

/* Adds the column under its own name, where the row has it and it is not NULL. */
void member_column(cJSON *object, const PGresult *rows, int row, const char *name);

/* Adds `discount` and `metadata`, as far as the row has them. */
void member_offer(cJSON *object, const PGresult *rows, int row);

/* Adds `receive` and `slot`. */
void member_receive(cJSON *object, const struct receive *receive, int slot);

#endif
