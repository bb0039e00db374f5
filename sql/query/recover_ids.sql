-- Advances the sequence of coupon ids.
-- $1 by how many
SELECT count(nextval('coupon_id_seq')) FROM generate_series(1, $1::bigint)
