-- Records rejected receives that PostgreSQL does not have any more, and returns the positions of
-- those that it did not have. Those that hold a slot in Redis are to be released there. A voided
-- one may be an issued one at the moment to which PostgreSQL was put back: that is undone.
-- $1 coupon, $2 batches, $3 indexes, $4 users, $5 slots, $6 reasons, $7 times of acceptance (ms),
-- $8 whether they hold a slot (1, 0): arrays of one length
WITH r AS (
	SELECT * FROM unnest($2::uuid[], $3::smallint[], $4::text[], $5::smallint[], $6::text[],
		$7::bigint[], $8::smallint[])
		WITH ORDINALITY AS r (batch, idx, user_id, slot, reason, at_ms, holds, ord)
), added AS (
	INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason, received_at,
		released_at)
	SELECT $1::bigint, batch, idx, user_id, slot, reason,
		timestamptz 'epoch' + at_ms * interval '1 ms', CASE holds WHEN 0 THEN now() END
	FROM r
	WHERE reason <> 'void_kept'
	ON CONFLICT DO NOTHING
	RETURNING batch, idx
), voided AS (
	INSERT INTO coupon_void (coupon_id, batch, idx, user_id, slot, is_returned, why, voided_by)
	SELECT $1::bigint, batch, idx, user_id, slot, reason = 'voided', NULL, 'couponctl recover'
	FROM r
	WHERE reason IN ('voided', 'void_kept')
	ON CONFLICT DO NOTHING
	RETURNING batch, idx
), undone AS (
	DELETE FROM user_coupon AS u
	USING r
	WHERE r.reason = 'voided' AND u.user_id = r.user_id AND u.coupon_id = $1::bigint
		AND u.batch = r.batch AND u.idx = r.idx
	RETURNING u.slot, u.batch, u.idx, u.code
), freed AS (
	UPDATE code AS c
	SET state = 'unused', user_id = NULL, batch = NULL, idx = NULL, used_at = NULL
	FROM undone AS u
	WHERE strpos(u.code, '.') > 0 AND c.set_id = split_part(u.code, '.', 1)::bigint
		AND c.serial = split_part(u.code, '.', 2)::bigint
		AND c.batch = u.batch AND c.idx = u.idx
), counted AS (
	UPDATE coupon
	SET issued_num = issued_num - (SELECT count(*) FROM undone)
	WHERE id = $1::bigint AND EXISTS (SELECT FROM undone)
)
SELECT min(r.ord) AS ord
FROM r JOIN (SELECT * FROM added UNION SELECT * FROM voided) AS new USING (batch, idx)
GROUP BY batch, idx
