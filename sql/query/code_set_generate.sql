-- Gives a range of positions to a set of codes. Returns the set. No row: there is no such coupon,
-- or a part of the range is in use. To be run under the lock "codes". The id keeps up with the
-- clock, so that no id is given twice when PostgreSQL was put back to an earlier moment.
-- $1 coupon, $2 space, $3 first position, $4 number of codes, $5 pattern, $6 request, $7 file
INSERT INTO code_set (id, coupon_id, kind, space_id, first_position, code_num, pattern, request,
	source, created_by)
SELECT greatest((SELECT coalesce(max(s.id), 0) + 1 FROM code_set AS s),
		extract(epoch FROM now())::bigint),
	c.id, 'generated', $2::int, $3::bigint, $4::bigint, $5::text, $6::text, $7::text,
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
FROM coupon AS c
WHERE c.id = $1::bigint AND NOT EXISTS (SELECT FROM code_set AS s
	WHERE s.space_id = $2::int AND s.first_position < $3::bigint + $4::bigint
		AND s.first_position + s.code_num > $3::bigint)
RETURNING id
