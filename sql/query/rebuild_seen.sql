-- Stores the highest numbers of older generations in Redis and in the reports of gateways. Changes
-- nothing if another keeper was elected.
-- $1 coupons, $2 generations and $3 numbers: arrays of one length, $4 the keeper's fence
UPDATE coupon_generation AS g
SET seq_seen = seen.seq
FROM (SELECT coupon, generation, max(seq) AS seq
		FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS s (coupon, generation, seq)
		GROUP BY coupon, generation) AS seen,
	(SELECT fence FROM keeper WHERE fence = $4::bigint FOR SHARE) AS elected
WHERE g.coupon_id = seen.coupon AND g.generation = seen.generation AND g.seq_seen < seen.seq
