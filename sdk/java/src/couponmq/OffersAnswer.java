package couponmq;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A page of what is on offer.
 *
 * @param cursor of the next page; null: this is the last
 */
public record OffersAnswer(
        int code, String status, String message, boolean replayed, String key,
        List<Offer> offers, String cursor) implements Answer {
    /** Without a list there are none. */
    public OffersAnswer { offers = Json.list(offers); }

    /**
     * A campaign on offer; of a user, with what the user may have of it.
     *
     * @param state {@code open}, {@code not_started} or {@code unavailable}: then total, stock and
     *     limit are null
     * @param why the status that {@code issue} would answer, if it is not claimable
     */
    public record Offer(
            String coupon, String name, List<String> tags, String state, Long total, Long stock,
            Long limit, Instant begin, Instant end, Discount discount,
            Map<String, Object> metadata, Integer taken, Integer left, Boolean claimable,
            String why) {}
}
