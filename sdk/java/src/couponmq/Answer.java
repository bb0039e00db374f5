package couponmq;

/**
 * Done ({@link #ok}), or refused, with a status that says why. Members that an answer does not have
 * are null, or an empty list.
 */
public interface Answer {
    /** 0: done. Others are refusals. */
    int code();

    /** What was done, or why it was refused. */
    String status();

    /** For people, of a refusal. */
    String message();

    /** The key was known: by an earlier call, or an attempt of this one. */
    boolean replayed();

    /** The idempotency key that the call had; null: it changes nothing. */
    String key();

    /** Whether it was done. */
    default boolean ok() { return code() == 0; }

    /** An answer without members of its own. */
    record Plain(int code, String status, String message, boolean replayed, String key)
            implements Answer {}
}
