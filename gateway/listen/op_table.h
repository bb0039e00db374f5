/*
 * The operations: OP(enumerator, "name", whether it only reads). No include guard: included for its
 * expansion.
 */
OP(OP_ISSUE, "issue", 0)
OP(OP_REDEEM, "redeem", 0)
OP(OP_STATUS, "status", 1)
OP(OP_COUPON, "coupon", 1)
OP(OP_COUPONS, "coupons", 1)
OP(OP_PING, "ping", 1)
OP(OP_STATS, "stats", 1)
