-- The counts of the older generations of a coupon; generation 0 has the sums of those that are
-- folded. idle_ms: since the last outcome, or the end of the generation; NULL: that time is in the
-- future.
-- $1 coupon
SELECT generation, seq_seen, settled_num,
	CASE WHEN outcome_at <= clock_timestamp()
		THEN floor(extract(epoch FROM clock_timestamp() - outcome_at) * 1000)::bigint
		END AS idle_ms
FROM coupon_generation
WHERE coupon_id = $1::bigint
ORDER BY generation
