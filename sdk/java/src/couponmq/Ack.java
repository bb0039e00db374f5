package couponmq;

/** What the answer to {@link Issue} or {@link Claim} waits for. */
public enum Ack {
    /** The request is decided and recorded in Redis. */
    ACCEPTED,
    /** RabbitMQ has confirmed the message, too. */
    QUEUED,
    /** PostgreSQL has the user coupon: an order can hold it. */
    ISSUED
}
