package couponmq;

/** Gives up a hold: the order is cancelled before it has used the receives. */
public final class Release extends OfOrder<Release> {
    private Release(String order) { super(order); }

    /** Of this order. */
    public static Release of(String order) { return new Release(order); }
}
