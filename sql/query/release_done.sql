-- Marks these rejected receives as released in Redis. Skips rows that another worker has locked.
-- $1 coupons, $2 batches, $3 indexes: arrays of one length
WITH mine AS (
	SELECT t.coupon_id, t.batch, t.idx
	FROM unnest($1::bigint[], $2::uuid[], $3::smallint[]) AS r (coupon_id, batch, idx)
		JOIN receive_rejected AS t USING (coupon_id, batch, idx)
	WHERE t.released_at IS NULL
	FOR UPDATE OF t SKIP LOCKED
)
UPDATE receive_rejected AS t
SET released_at = now()
FROM mine
WHERE t.coupon_id = mine.coupon_id AND t.batch = mine.batch AND t.idx = mine.idx
