package couponmq;

/**
 * Nothing was done by this call: busy, unavailable, rate_limited, or unreachable until the
 * deadline. An earlier call with its key may have done it. A call that changes nothing throws it
 * also where no answer came.
 */
public final class Unavailable extends CouponException {
    Unavailable(String message, Throwable cause) { super(message, cause); }
}
