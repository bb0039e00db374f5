-- The set that a command has made. No row: none yet.
-- $1 request
SELECT s.id, s.coupon_id, s.space_id, s.first_position, s.code_num, s.pattern, s.source,
	s.revoked_at IS NOT NULL AS is_revoked,
	p.alphabet, p.key_version
FROM code_set AS s LEFT JOIN code_space AS p ON p.id = s.space_id
WHERE s.request = $1::text
