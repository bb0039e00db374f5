/*
 * What can be traced by name, with COUPON_TRACE: TRACE(enumerator, "name"). No include guard:
 * included for its expansion.
 */
TRACE(TRACE_CALL, "call")
TRACE(TRACE_DELIVERY, "delivery")
TRACE(TRACE_LOOKUP, "lookup")
TRACE(TRACE_REDIS, "redis")
