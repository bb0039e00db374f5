/*
 * What an audit may find wrong: FINDING(name, word, promise, meaning). The word is part of
 * the output for programs and never changes.
 */
FINDING(ISSUED_NUM, "issued_num", "P1", "`issued_num` is not the number of user coupons")
FINDING(OVERSOLD, "oversold", "P1", "more user coupons are issued than the total")
FINDING(COUPON_UNKNOWN, "coupon_unknown", "P1", "a user coupon of a coupon that does not exist")
FINDING(USER_LIMIT, "user_limit", "P2", "a user has more user coupons than the limit")
FINDING(SLOT_LIMIT, "slot_limit", "P2", "a user coupon in a slot beyond the limit")
FINDING(ISSUED_TWICE, "issued_twice", "P3", "one receive has several user coupons")
FINDING(ISSUED_AND_REJECTED, "issued_and_rejected", "P3", "one receive is both issued and rejected")
FINDING(ROW_MISSING, "row_missing", "P3",
	"a settled receive has neither a user coupon nor a rejection")
FINDING(RECEIVE_LOST, "receive_lost", "P3",
	"a receive whose message no longer exists; it cannot get an outcome")
FINDING(SETTLED_NUM, "settled_num", "P3", "`settled_num` is not the number of outcomes")
FINDING(SEQ_SEEN, "seq_seen", "P3",
	"`seq_seen` was never assigned, or is less than the number of settled receives")
FINDING(OUTBOX_MALFORMED, "outbox_malformed", "P3", "an outbox entry that the script did not write")
FINDING(OUTBOX_SETTLED, "outbox_settled", "P3",
	"an outbox entry that was settled long ago, and that no worker removes")
FINDING(ROW_UNKNOWN, "row_unknown", "P4",
	"a user coupon that was never counted, and that Redis does not have")
FINDING(SLOT_MISSING, "slot_missing", "P4", "an issued receive whose slot in Redis is gone")
FINDING(SLOT_UNKNOWN, "slot_unknown", "P4",
	"a slot in Redis that is taken by a receive that was never accepted")
FINDING(SLOT_RECEIVE, "slot_receive", "P4",
	"a slot that has another receive in Redis than in PostgreSQL")
FINDING(SLOT_KEY, "slot_key", "P4",
	"a slot that has another idempotency key in Redis than in PostgreSQL")
FINDING(SLOT_UNRELEASED, "slot_unreleased", "P4",
	"a slot still held by a rejected receive that is recorded as released")
FINDING(SUM, "sum", "P4", "stock + taken slots + reserved + lost is not the total")
FINDING(TERMS, "terms", "P4", "the terms in Redis differ from PostgreSQL under the same version")
FINDING(REDIS_BEHIND, "redis_behind", "P4",
	"Redis has an older state than PostgreSQL, and no rebuild followed")
FINDING(RECORDS_MALFORMED, "records_malformed", "P4",
	"a user's records in Redis that no script wrote")
FINDING(COUPON_MALFORMED, "coupon_malformed", "P4",
	"a field of the coupon in Redis that no script wrote")
FINDING(KEY_TYPE, "key_type", "P4", "a key of the coupon in Redis has the wrong type")
FINDING(CODE_ROW, "code_row", "P4",
	"an exchange code that is used without a user coupon, or the other way round")
FINDING(CODE_OWNER, "code_owner", "P4",
	"an exchange code and the records of its user in Redis do not agree")
FINDING(CODE_REVOKED, "code_revoked", "P4",
	"a revoked exchange code, word or set that Redis does not have as revoked")
