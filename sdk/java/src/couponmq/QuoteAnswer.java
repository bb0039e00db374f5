package couponmq;

import java.time.Instant;
import java.util.List;

/**
 * What the terms of a coupon take off an amount.
 *
 * @param usable false: a use of this amount is refused
 * @param receives of a user: those that take most off first
 */
public record QuoteAnswer(
        int code, String status, String message, boolean replayed, String key, String coupon,
        Money amount, Money amountOff, Boolean usable, List<Quoted> receives) implements Answer {
    /** Without a list there are none. */
    public QuoteAnswer { receives = Json.list(receives); }

    /**
     * A receive of a user that an order could use.
     *
     * @param validTo null: the validity has no end
     */
    public record Quoted(
            String receive, int slot, String coupon, String name, Money amountOff,
            Instant validTo) {}
}
