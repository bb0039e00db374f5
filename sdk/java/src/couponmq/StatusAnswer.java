package couponmq;

import com.google.gson.annotations.SerializedName;
import java.time.Instant;
import java.util.List;

/**
 * The answer to a status. One receive is {@code accepted}, {@code issued}, {@code rejected} or
 * {@code not_found}; of a user it is {@code ok} with all receives.
 *
 * @param reason of a rejection
 * @param validTo null: the validity has no end
 * @param use which order has the receive; null: none
 * @param isFinal of {@code not_found}, and of no receives: whether none can still appear
 */
public record StatusAnswer(
        int code, String status, String message, boolean replayed, String key, String receive,
        Integer slot, String reason, Instant validFrom, Instant validTo, InUse use,
        List<Receive> receives, @SerializedName("final") Boolean isFinal) implements Answer {
    /** Without a list there are none. */
    public StatusAnswer { receives = Json.list(receives); }

    /** One receive of a user: its state is {@code accepted}, {@code issued} or {@code rejected}. */
    public record Receive(
            String receive, int slot, String state, String reason, Instant validFrom,
            Instant validTo, InUse use) {}

    /** Which order has a receive: {@code held} until a time, or {@code used}. */
    public record InUse(String state, String order, Instant until) {}
}
