-- Whether what a rejected receive holds in Redis was given back. NULL: not yet, or nobody knows.
ALTER TABLE receive_rejected ADD COLUMN released_at timestamptz;

-- See query/release_pending.sql, which repeats the predicate.
CREATE INDEX receive_rejected_pending ON receive_rejected (coupon_id, batch, idx) WHERE released_at IS NULL;

GRANT UPDATE (released_at) ON receive_rejected TO couponmq_app;
