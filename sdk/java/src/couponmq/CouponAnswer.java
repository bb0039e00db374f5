package couponmq;

import java.time.Instant;
import java.util.Map;

/**
 * The terms of a coupon, and what is left.
 *
 * @param state {@code open}, {@code not_started}, {@code paused} or {@code ended}
 * @param partial discount and metadata could not be read
 */
public record CouponAnswer(
        int code, String status, String message, boolean replayed, String key, String coupon,
        String state, Long total, Long stock, Long limit, Instant begin, Instant end,
        Discount discount, Map<String, Object> metadata, boolean partial) implements Answer {}
