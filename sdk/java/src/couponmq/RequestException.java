package couponmq;

/** The caller's mistake: the request is refused however often it is sent. */
public final class RequestException extends CouponException {
    /** Which mistake. */
    private final String status;

    /** The status of HTTP. */
    private final int httpStatus;

    RequestException(String status, String message, int httpStatus) {
        super(message, null);
        this.status = status;
        this.httpStatus = httpStatus;
    }

    /**
     * {@code bad_request}: a member is not as it must be, and the message names it; {@code
     * unauthorized}: the token is missing, wrong, expired or revoked; {@code forbidden}: it does
     * not allow the call; {@code too_large}; {@code key_reused}: the idempotency key was used for
     * another request; {@code http}: HTTP itself refuses another path (404), another name of a host
     * (421), or by a proxy.
     */
    public String status() { return status; }

    /** The status of HTTP of the refusal. */
    public int httpStatus() { return httpStatus; }
}
