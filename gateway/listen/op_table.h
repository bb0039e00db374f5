/*
 * The operations: OP(enumerator, "name", whether it only reads, its cost in the event loop in about
 * microseconds, intake.h). No include guard: included for its expansion.
 */
OP(OP_ISSUE, "issue", 0, 2)
OP(OP_CLAIM, "claim", 0, 6)
OP(OP_STATUS, "status", 1, 10)
OP(OP_COUPON, "coupon", 1, 10)
OP(OP_COUPONS, "coupons", 1, 20)
OP(OP_PING, "ping", 1, 2)
OP(OP_STATS, "stats", 1, 16)
OP(OP_AUTH, "auth", 0, 4)
OP(OP_HOLD, "hold", 0, 8)
OP(OP_USE, "use", 0, 8)
OP(OP_RELEASE, "release", 0, 8)
OP(OP_ROLLBACK, "rollback", 0, 8)
OP(OP_QUOTE, "quote", 1, 10)
OP(OP_OFFERS, "offers", 1, 10)
OP(OP_CODE, "code", 1, 14)
