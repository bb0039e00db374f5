/*
 * Every type of event once: EVENT(enumerator, "type"). The column event_log.type allows the same.
 * No include guard: included for its expansion.
 */
EVENT(EVENT_ISSUED, "coupon.issued")
EVENT(EVENT_REJECTED, "coupon.rejected")
EVENT(EVENT_VOIDED, "coupon.voided")
EVENT(EVENT_HELD, "coupon.held")
EVENT(EVENT_USED, "coupon.used")
EVENT(EVENT_RELEASED, "coupon.released")
EVENT(EVENT_ROLLED_BACK, "coupon.rolled_back")
EVENT(EVENT_EXPIRING, "coupon.expiring")
EVENT(EVENT_CHANGED, "campaign.changed")
