package couponmq;

import java.time.Instant;
import java.util.Map;

/**
 * What an exchange code would give to a user.
 *
 * @param state {@code open}, {@code not_started}, {@code paused} or {@code ended}
 * @param codeEnd null: the code ends with the campaign
 * @param why what {@code claim} would answer, if it is not claimable
 * @param receive the user's by this code; null: the user has not claimed it
 * @param partial discount and metadata could not be read
 */
public record CodeAnswer(
        int code, String status, String message, boolean replayed, String key, String coupon,
        String state, Long total, Long stock, Long limit, Instant begin, Instant end,
        Instant codeEnd, Integer taken, Integer left, Boolean claimable, String why,
        String receive, Integer slot, Discount discount, Map<String, Object> metadata,
        boolean partial) implements Answer {}
