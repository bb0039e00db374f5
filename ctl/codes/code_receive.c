#include "ctl/codes/code_receive.h"

#include "common/check.h"

#include <string.h>

char *code_receive(const PGresult *rows, int row, int64_t coupon, char out[RECEIVE_SIZE])
{
	const char *user = db_text(rows, row, "user_id");
	struct receive receive = { .coupon = coupon, .index = (int)db_int(rows, row, "idx") };

	out[0] = '\0';
	if (!*user)
		return out;
	check(user_id_parse(&receive.user, user, strlen(user)) == 0);
	check(ulid_from_uuid(&receive.batch, db_text(rows, row, "batch")) == 0);
	receive_format(&receive, out);
	return out;
}
