package couponmq;

import com.google.gson.JsonObject;

/**
 * A call that changes something. It is made once, and may be sent again.
 *
 * @param <S> the kind of call
 */
public abstract sealed class Attempt<S extends Attempt<S>> permits Issue, Claim, OfOrder {
    final JsonObject members = new JsonObject();
    String key;

    Attempt() {}

    /**
     * The idempotency key of the customer's attempt, stored before the call, so that the call can
     * be repeated after a crash. Without it the client makes one each time the call is sent.
     */
    public S key(String key) {
        this.key = Json.text("key", key);
        return self();
    }

    /** A traceparent. */
    public S trace(String traceparent) { return with("trace", traceparent); }

    S with(String name, String value) {
        members.addProperty(name, Json.text(name, value));
        return self();
    }

    S withAck(Ack ack) { return with("ack", ack.name().toLowerCase(java.util.Locale.ROOT)); }

    S withAmount(Money amount) {
        members.addProperty("amount", amount.minor());
        return with("currency", amount.currency());
    }

    @SuppressWarnings("unchecked")
    S self() { return (S) this; }
}
