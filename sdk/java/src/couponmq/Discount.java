package couponmq;

import java.math.BigDecimal;

/**
 * What a coupon takes off: an amount or a percentage.
 *
 * @param cap the most that the percentage takes off
 * @param threshold the discount is for purchases from this amount on
 */
public record Discount(
        Money amountOff, BigDecimal percentOff, Money cap, Money threshold, String currency) {}
