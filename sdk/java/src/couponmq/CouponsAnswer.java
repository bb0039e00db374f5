package couponmq;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A page of the coupons of a user.
 *
 * @param cursor of the next page; null: this is the last
 */
public record CouponsAnswer(
        int code, String status, String message, boolean replayed, String key,
        List<UserCoupon> coupons, String cursor) implements Answer {
    /** Without a list there are none. */
    public CouponsAnswer { coupons = Json.list(coupons); }

    /**
     * An issued coupon of a user.
     *
     * @param validTo null: the validity has no end
     * @param use which order has it; null: none
     */
    public record UserCoupon(
            String coupon, String receive, int slot, Instant receivedAt, Instant validFrom,
            Instant validTo, String name, Discount discount, Map<String, Object> metadata,
            StatusAnswer.InUse use, boolean voided) {}
}
