/*
 * REASON(name, text): why a receive was rejected, as in receive_rejected.reason; docs/lifecycle.md
 * describes each.
 */
REASON(UNKNOWN_COUPON, "unknown_coupon")
REASON(SLOT_TAKEN, "slot_taken")
REASON(SLOT_INVALID, "slot_invalid")
REASON(OUT_OF_STOCK, "out_of_stock")
REASON(KEY_TAKEN, "key_taken")
REASON(LOST, "lost")
REASON(VOIDED, "voided")
REASON(CODE_USED, "code_used")
REASON(CODE_INVALID, "code_invalid")
