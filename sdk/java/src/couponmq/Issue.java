package couponmq;

/** Asks for a coupon. */
public final class Issue extends Attempt<Issue> {
    private Issue() {}

    /** For this user. */
    public static Issue of(String coupon, String user) {
        return new Issue().with("coupon", coupon).with("user", user);
    }

    /** What the answer waits for, {@link Ack#ACCEPTED} by default. */
    public Issue ack(Ack ack) { return withAck(ack); }
}
