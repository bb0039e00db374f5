package couponmq;

/** Takes a use back: the order is cancelled after it has used the receives. */
public final class Rollback extends OfOrder<Rollback> {
    private Rollback(String order) { super(order); }

    /** Of this order. */
    public static Rollback of(String order) { return new Rollback(order); }

    /** Only this part of the discount, of one receive, which stays used. */
    public Rollback amount(Money amount) { return withAmount(amount); }

    /** Why, for the history. */
    public Rollback reason(String reason) { return with("reason", reason); }
}
