package couponmq;

/**
 * The answer to {@link Issue} and {@link Claim}: {@code accepted}, {@code queued}, {@code issued};
 * {@code rejected}, which has a reason; {@code out_of_stock}, {@code limit_reached}, {@code
 * not_started}, {@code ended}, {@code paused}, {@code not_found}, {@code code_invalid}, {@code
 * code_used}, {@code code_expired}.
 *
 * @param receive the accepted request
 * @param slot which of the user's allowed coupons it is
 * @param coupon of a claim
 * @param reason of a rejection
 */
public record IssueAnswer(
        int code, String status, String message, boolean replayed, String key, String receive,
        Integer slot, String coupon, String reason) implements Answer {}
