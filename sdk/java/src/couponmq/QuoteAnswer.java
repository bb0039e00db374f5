package couponmq;

/**
 * What the terms of a coupon take off an amount.
 *
 * @param usable false: a use of this amount is refused
 */
public record QuoteAnswer(
        int code, String status, String message, boolean replayed, String key, String coupon,
        Money amount, Money amountOff, Boolean usable) implements Answer {}
