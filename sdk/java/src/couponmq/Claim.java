package couponmq;

/** Asks for the coupon of an exchange code. */
public final class Claim extends Attempt<Claim> {
    private Claim() {}

    /** The code is as the user typed it. */
    public static Claim of(String code, String user) {
        return new Claim().with("code", code).with("user", user);
    }

    /** What the answer waits for, {@link Ack#ACCEPTED} by default. */
    public Claim ack(Ack ack) { return withAck(ack); }
}
