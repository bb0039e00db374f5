package couponmq;

/**
 * The call may have been done, now or later. Repeat it with this key until its answer is known,
 * before the order or the user does something else.
 */
public final class Unknown extends CouponException {
    /** The key of the call. */
    private final String key;

    /** The receive that was accepted, or null. */
    private final String receive;

    Unknown(String message, String key, String receive, Throwable cause) {
        super(message, cause);
        this.key = key;
        this.receive = receive;
    }

    /** Repeat the call with it. */
    public String key() { return key; }

    /** Accepted, and stays so: only the level of ack was not reached. Null: that is not known. */
    public String receive() { return receive; }
}
