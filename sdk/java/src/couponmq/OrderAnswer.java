package couponmq;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * The answer to what an order does: {@code held}, {@code used}, {@code released}, {@code
 * rolled_back}; or {@code held_by_other}, {@code already_used}, {@code expired}, {@code
 * not_valid_yet}, {@code voided}, {@code budget_spent}, {@code below_threshold}, {@code
 * amount_exceeded}, {@code not_found}.
 *
 * @param until the end of the hold
 * @param amountOff what the terms take off
 * @param now of an answer that is replayed: what became of the receive
 * @param receives those of a call that named several
 */
public record OrderAnswer(
        int code, String status, String message, boolean replayed, String key, String receive,
        Instant until, Money amountOff, Now now, List<OfReceive> receives) implements Answer {
    private static final Map<String, List<String>> STATES =
            Map.of("held", List.of("held", "used"), "used", List.of("used"));

    /** Without a list there are none. */
    public OrderAnswer { receives = Json.list(receives); }

    /** One of several receives that an order has named; its members are those of the answer. */
    public record OfReceive(String receive, Instant until, Money amountOff, Now now) {}

    /**
     * What became of a receive: {@code free}, {@code held}, {@code used}, {@code voided} or {@code
     * not_found}.
     *
     * @param order that of the request, if it has the receive
     * @param until the end of its hold
     */
    public record Now(String state, String order, Instant until) {}

    /**
     * Whether the order has now what a hold or a use has answered. An answer that is {@link
     * #replayed} describes the past: what it did may have been given back since.
     */
    public boolean stands() {
        List<String> states = STATES.getOrDefault(status, List.of());
        if (!replayed) return !states.isEmpty();
        if (receives.isEmpty()) return isIn(now, states);
        return receives.stream().allMatch(one -> isIn(one.now, states));
    }

    private static boolean isIn(Now now, List<String> states) {
        return now != null && now.order != null && states.contains(now.state);
    }
}
