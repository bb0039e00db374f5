/*
 * Revoked codes in Redis, where they are decided. A code is marked there before PostgreSQL revokes
 * it: whoever has redeemed it until then keeps it, and nobody redeems it after. And once more
 * afterwards, because a rebuild of the coupon in between has read PostgreSQL.
 */
#ifndef CTL_CODES_REVOKE_MARKS_H
#define CTL_CODES_REVOKE_MARKS_H

#include "common/message/receive.h"
#include "common/redis/client.h"

#define REVOKE_MARKS_MAX 512

struct revoke_mark {
	char code[RECEIVE_CODE_MAX + 1];
	char user[USER_ID_SIZE]; /* by whom it is redeemed; "": it is revoked, or not in Redis */
};

/* Marks 1 to REVOKE_MARKS_MAX codes of a coupon. A Redis that cannot ends the process. */
void revoke_marks_set(struct redis_client *redis, int64_t coupon, struct revoke_mark *marks,
		      size_t n);

#endif
