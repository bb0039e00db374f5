-- One code of a set, whose row may be absent: then it is unused. No row: there is no such set.
-- $1 set, $2 serial
SELECT s.id AS set_id, $2::bigint AS serial, s.coupon_id, s.kind, s.pattern, p.alphabet,
	CASE WHEN s.revoked_at IS NOT NULL AND coalesce(c.state, 'unused') = 'unused' THEN 'revoked'
		ELSE coalesce(c.state, 'unused') END AS state,
	c.user_id, c.batch::text, c.idx, c.metadata::text,
	to_char(c.used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS used_at,
	to_char(coalesce(c.revoked_at, s.revoked_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	coalesce(c.revoked_by, s.revoked_by) AS revoked_by
FROM code_set AS s LEFT JOIN code AS c ON c.set_id = s.id AND c.serial = $2::bigint
	LEFT JOIN code_space AS p ON p.id = s.space_id
WHERE s.id = $1::bigint
