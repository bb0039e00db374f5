-- Adds a set of codes that others made, or of a word. Returns the set. No row: there is no such
-- coupon. To be run under the lock "codes"; see code_set_generate.sql about the id.
-- $1 coupon, $2 kind, $3 request (NULL: none), $4 file (NULL: none)
INSERT INTO code_set (id, coupon_id, kind, request, source, created_by)
SELECT greatest((SELECT coalesce(max(s.id), 0) + 1 FROM code_set AS s),
		extract(epoch FROM now())::bigint),
	c.id, $2::text, $3::text, $4::text,
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
FROM coupon AS c
WHERE c.id = $1::bigint
RETURNING id
