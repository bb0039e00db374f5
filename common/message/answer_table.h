/*
 * The answer codes, each once: ANSWER(enumerator, code, "status", HTTP status, "what it means").
 * Codes 0–4 keep the numbering that issue scripts of this kind commonly use. No include guard:
 * included for its expansion.
 */
ANSWER(ANSWER_OK, 0, "ok", 200, "done")
ANSWER(ANSWER_NOT_FOUND, 1, "not_found", 404, "no such coupon or receive")
ANSWER(ANSWER_OUT_OF_STOCK, 2, "out_of_stock", 409, "the coupon is sold out")
ANSWER(ANSWER_ENDED, 3, "ended", 409, "the campaign is over")
ANSWER(ANSWER_LIMIT_REACHED, 4, "limit_reached", 409,
       "the user already has the maximum number of this coupon")
ANSWER(ANSWER_NOT_STARTED, 5, "not_started", 409, "the campaign has not begun")
ANSWER(ANSWER_PAUSED, 6, "paused", 409, "the campaign is paused")
ANSWER(ANSWER_CODE_INVALID, 7, "code_invalid", 422, "no such exchange code")
ANSWER(ANSWER_CODE_USED, 8, "code_used", 409, "the exchange code was already used")
ANSWER(ANSWER_CODE_EXPIRED, 16, "code_expired", 409, "the exchange code is no longer valid")
ANSWER(ANSWER_REJECTED, 9, "rejected", 409, "the accepted receive could not be issued")
ANSWER(ANSWER_HELD_BY_OTHER, 10, "held_by_other", 409, "another order holds the receive")
ANSWER(ANSWER_ALREADY_USED, 11, "already_used", 409, "the receive is already used")
ANSWER(ANSWER_EXPIRED, 12, "expired", 409, "the receive is no longer valid")
ANSWER(ANSWER_NOT_VALID_YET, 13, "not_valid_yet", 409, "the receive is not valid yet")
ANSWER(ANSWER_VOIDED, 14, "voided", 409, "the receive was taken back")
ANSWER(ANSWER_BUDGET_SPENT, 15, "budget_spent", 409,
       "the budget of the campaign does not have what would be taken off")
ANSWER(ANSWER_BELOW_THRESHOLD, 17, "below_threshold", 409,
       "the amount is too small for the discount")
ANSWER(ANSWER_AMOUNT_EXCEEDED, 18, "amount_exceeded", 409,
       "the amount is more than the use takes off")
ANSWER(ANSWER_BUSY, 20, "busy", 429, "a limit is reached; nothing was done; retry later")
ANSWER(ANSWER_UNAVAILABLE, 21, "unavailable", 503,
       "a required service is not available; nothing was done; retry later")
ANSWER(ANSWER_UNKNOWN, 22, "unknown", 504,
       "may or may not have been done; query status, or retry with the same key")
ANSWER(ANSWER_RATE_LIMITED, 23, "rate_limited", 429,
       "too many requests; nothing was done; retry after retry_after_ms")
ANSWER(ANSWER_BAD_REQUEST, 40, "bad_request", 400, "the request is malformed")
ANSWER(ANSWER_UNAUTHORIZED, 41, "unauthorized", 401, "not authenticated")
ANSWER(ANSWER_FORBIDDEN, 42, "forbidden", 403, "not allowed")
ANSWER(ANSWER_TOO_LARGE, 43, "too_large", 413, "the request is larger than allowed")
ANSWER(ANSWER_KEY_REUSED, 44, "key_reused", 422,
       "the key was used for another request; nothing was done")
