package couponmq;

/** What a call throws. A refusal, such as out_of_stock, is no exception: it is the answer. */
public abstract sealed class CouponException extends RuntimeException
        permits RequestException, Unavailable, Unknown, BadSignature {
    CouponException(String message, Throwable cause) { super(message, cause); }
}
