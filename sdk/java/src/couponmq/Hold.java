package couponmq;

import java.time.Duration;

/** Keeps receives for an order while it is being paid. */
public final class Hold extends OfOrder<Hold> {
    private Hold(String order) { super(order); }

    /** For this order. */
    public static Hold of(String order) { return new Hold(order); }

    /** The amount of the order, before the discount. */
    public Hold amount(Money amount) { return withAmount(amount); }

    /** How long, in whole seconds; 15 minutes by default. */
    public Hold ttl(Duration ttl) {
        if (ttl.getNano() != 0)
            throw new IllegalArgumentException("ttl is " + ttl + ": must be whole seconds");
        members.addProperty("ttl_s", ttl.getSeconds());
        return this;
    }
}
