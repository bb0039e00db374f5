-- The sets of a coupon, or one set.
-- $1 coupon (NULL: any), $2 set (NULL: any)
SELECT s.id, s.coupon_id, s.kind, s.space_id, s.first_position, s.code_num, s.pattern,
	s.revoked_at IS NOT NULL AS is_revoked, p.alphabet
FROM code_set AS s LEFT JOIN code_space AS p ON p.id = s.space_id
WHERE ($1::bigint IS NULL OR s.coupon_id = $1::bigint) AND ($2::bigint IS NULL OR s.id = $2::bigint)
ORDER BY s.id
