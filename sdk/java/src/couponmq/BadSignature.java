package couponmq;

/** A request to a webhook that couponmq did not sign, or too long ago. */
public final class BadSignature extends CouponException {
    BadSignature(String message) { super(message, null); }
}
