-- The codes of a coupon that are used without a user coupon of the same receive, or the other way
-- round. At most 100. OFFSET 0: the codes of each set by their primary key.
-- $1 coupon
SELECT coalesce(c.code, u.code) AS code, coalesce(c.user_id, u.user_id) AS user_id,
	u.user_id IS NOT NULL AS has_row
FROM (SELECT s.id || '.' || c.serial AS code, c.user_id, c.batch, c.idx
		FROM code_set AS s, LATERAL (SELECT * FROM code
			WHERE code.set_id = s.id AND code.state = 'used' OFFSET 0) AS c
		WHERE s.coupon_id = $1::bigint) AS c
	FULL JOIN (SELECT code, user_id, batch, idx FROM user_coupon
		WHERE coupon_id = $1::bigint AND strpos(code, '.') > 0) AS u
		ON u.code = c.code AND u.user_id = c.user_id AND u.batch = c.batch
			AND u.idx = c.idx
WHERE c.code IS NULL OR u.code IS NULL
ORDER BY 1, 2
LIMIT 100
