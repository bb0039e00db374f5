package couponmq;

/** Uses what the order holds, or what is free. */
public final class Use extends OfOrder<Use> {
    private Use(String order) { super(order); }

    /** For this order. */
    public static Use of(String order) { return new Use(order); }

    /** The amount of the order, before the discount. */
    public Use amount(Money amount) { return withAmount(amount); }
}
