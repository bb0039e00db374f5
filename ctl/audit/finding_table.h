/*
 * What an audit may find wrong: FINDING(name, word, promise, meaning). The word is for programs,
 * and never changes.
 */
FINDING(ISSUED_NUM, "issued_num", "P1", "`issued_num` is not the number of user coupons")
FINDING(OVERSOLD, "oversold", "P1", "more are issued than the total")
FINDING(COUPON_UNKNOWN, "coupon_unknown", "P1", "a user coupon, and there is no such coupon")
FINDING(USER_LIMIT, "user_limit", "P2", "a user has more coupons than the limit")
FINDING(SLOT_LIMIT, "slot_limit", "P2", "a slot beyond the limit")
FINDING(ISSUED_TWICE, "issued_twice", "P3", "one receive has several user coupons")
FINDING(ISSUED_AND_REJECTED, "issued_and_rejected", "P3", "one receive is issued and rejected")
FINDING(ROW_MISSING, "row_missing", "P3",
	"it was settled, and neither user coupon nor rejection is there any more")
FINDING(RECEIVE_LOST, "receive_lost", "P3", "its message is gone: it never gets an outcome")
FINDING(SETTLED_NUM, "settled_num", "P3", "`settled_num` is not the number of outcomes")
FINDING(SEQ_SEEN, "seq_seen", "P3",
	"`seq_seen` is a number that was never given out, or less than was settled")
FINDING(OUTBOX_MALFORMED, "outbox_malformed", "P3",
	"an entry of the outbox that the script did not write")
FINDING(OUTBOX_SETTLED, "outbox_settled", "P3", "an entry of the outbox that was settled long ago")
FINDING(ROW_UNKNOWN, "row_unknown", "P4",
	"a user coupon that nobody was promised: it was never counted, and Redis does not have it")
FINDING(SLOT_MISSING, "slot_missing", "P4", "issued, and its slot in Redis is gone")
FINDING(SLOT_UNKNOWN, "slot_unknown", "P4",
	"a slot taken in Redis by a receive that was never given out")
FINDING(SLOT_RECEIVE, "slot_receive", "P4",
	"a slot that is another receive's in Redis than in PostgreSQL")
FINDING(SLOT_KEY, "slot_key", "P4", "another idempotency key in Redis than in PostgreSQL")
FINDING(SLOT_UNRELEASED, "slot_unreleased", "P4",
	"a rejected receive still holds the slot that it is said to have given back")
FINDING(SUM, "sum", "P4", "stock + taken slots + reserved + lost is not the total")
FINDING(TERMS, "terms", "P4", "other terms in Redis than in PostgreSQL, under the same version")
FINDING(REDIS_BEHIND, "redis_behind", "P4",
	"Redis has an older state than PostgreSQL, and no rebuild came")
FINDING(RECORDS_MALFORMED, "records_malformed", "P4",
	"a user's records in Redis that no script wrote")
FINDING(COUPON_MALFORMED, "coupon_malformed", "P4",
	"a field of the coupon in Redis that no script wrote")
FINDING(KEY_TYPE, "key_type", "P4", "a key of the coupon in Redis that is of another type")
