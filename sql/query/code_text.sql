-- The code that others made, or the word, with this text. No row: none.
-- $1 text
SELECT c.set_id, c.serial, c.coupon_id, s.kind, coalesce(c.spelling, c.text) AS spelling,
	CASE WHEN s.revoked_at IS NOT NULL AND c.state = 'unused' THEN 'revoked' ELSE c.state END
		AS state,
	c.user_id, c.batch::text, c.idx, c.metadata::text,
	to_char(c.used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS used_at,
	to_char(coalesce(c.revoked_at, s.revoked_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	coalesce(c.revoked_by, s.revoked_by) AS revoked_by
FROM code AS c JOIN code_set AS s ON s.id = c.set_id
WHERE c.text = $1::text
