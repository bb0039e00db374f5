package couponmq;

import com.google.gson.*;
import java.io.IOException;
import java.time.Instant;
import java.util.*;

/**
 * What couponmq tells, as a CloudEvent. Its source and id together are the same in each copy.
 *
 * @param data one of the records here, by the type
 */
public record Event(
        String id, String source, String type, String subject, Instant time, Data data,
        String traceparent, String requestid) {

    /** What has happened. */
    public sealed interface Data
            permits Issued, Rejected, Voided, Held, Used, Released, RolledBack, Changed, Other {
        /** The id of the coupon. */
        String coupon();
    }

    /** PostgreSQL has the user coupon; of {@code coupon.expiring}: its end is near. */
    public record Issued(
            String coupon, String user, String receive, int slot, Instant receivedAt,
            Instant validFrom, Instant validTo, String key) implements Data {}

    /** PostgreSQL has the rejection of an accepted receive. */
    public record Rejected(
            String coupon, String user, String receive, int slot, String reason, Instant receivedAt)
            implements Data {}

    /** An operator took back an issued receive; returned: whether stock and slot became free. */
    public record Voided(
            String coupon, String user, String receive, int slot, boolean returned, String by,
            String why) implements Data {}

    /** An order holds the receive, or renews its hold. */
    public record Held(
            String coupon, String user, String receive, String order, Instant until, Money amount,
            Money amountOff) implements Data {}

    /** An order has used the receive. */
    public record Used(
            String coupon, String user, String receive, String order, Money amount, Money amountOff)
            implements Data {}

    /** The order has released its hold; reason: {@code hold_ended} if the hold has expired. */
    public record Released(
            String coupon, String user, String receive, String order, String reason)
            implements Data {}

    /**
     * The order has rolled back its use, or a part of the discount.
     *
     * @param reason that of the request
     * @param amount the part that was given back; null: all of it, and the receive is free
     * @param amountOff what the use takes off from now on
     */
    public record RolledBack(
            String coupon, String user, String receive, String order, String reason, Money amount,
            Money amountOff) implements Data {}

    /**
     * The terms or the state of a campaign have changed.
     *
     * @param from null: the coupon is new
     * @param changes each term that changed, before and after
     */
    public record Changed(
            String coupon, long version, String action, String from, String to, String by,
            Map<String, Object> changes) implements Data {}

    /** An event whose type is not known here. */
    public record Other(String coupon, Map<String, Object> members) implements Data {}

    private static final Map<String, Class<? extends Data>> KINDS = Map.of(
            "coupon.issued", Issued.class, "coupon.rejected", Rejected.class,
            "coupon.voided", Voided.class, "coupon.held", Held.class,
            "coupon.used", Used.class, "coupon.released", Released.class,
            "coupon.rolled_back", RolledBack.class, "coupon.expiring", Issued.class,
            "campaign.changed", Changed.class);

    /**
     * The events of a message of RabbitMQ, or of a request that was verified.
     *
     * @throws IllegalArgumentException the bytes are no events
     */
    public static List<Event> readAll(byte[] body) {
        List<Event> all = new ArrayList<>();
        try {
            JsonElement read = Json.parse(body);
            Json.amountsMake(read);
            if (!read.isJsonArray()) return List.of(of(read.getAsJsonObject()));
            for (JsonElement one : read.getAsJsonArray()) all.add(of(one.getAsJsonObject()));
            return List.copyOf(all);
        } catch (IOException | RuntimeException e) {
            throw new IllegalArgumentException("these are no events: " + e.getMessage(), e);
        }
    }

    private static Event of(JsonObject one) {
        String type = Json.string(one, "type");
        JsonObject data = one.getAsJsonObject("data");
        if (!KINDS.containsKey(type)) data.add("members", data.deepCopy());
        return new Event(
                Json.string(one, "id"), Json.string(one, "source"), type,
                Json.string(one, "subject"), Json.build(Instant.class, one.get("time")),
                Json.build(KINDS.getOrDefault(type, Other.class), data),
                Json.string(one, "traceparent"), Json.string(one, "requestid"));
    }
}
