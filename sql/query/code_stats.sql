-- The sets of a coupon with their numbers. In a revoked set all codes that are not used are
-- revoked. A word is one code, which stays unused; redeemed is how often it was redeemed.
-- $1 coupon
WITH counted AS (
	SELECT s.*, r.row_num, r.used_num, r.revoked_num, r.word,
		coalesce(s.code_num, r.row_num) AS all_num
	FROM code_set AS s LEFT JOIN LATERAL (
		SELECT count(*) AS row_num, count(*) FILTER (WHERE c.state = 'used') AS used_num,
			count(*) FILTER (WHERE c.state = 'revoked') AS revoked_num,
			min(coalesce(c.spelling, c.text)) FILTER (WHERE s.kind = 'word') AS word
		FROM code AS c WHERE c.set_id = s.id) AS r ON true
	WHERE s.coupon_id = $1::bigint
)
SELECT c.id::text AS set, c.kind, coalesce(c.pattern, c.word) AS form, p.key_version AS key,
	c.source AS file, c.completed_at IS NOT NULL AS complete, c.all_num AS codes,
	CASE WHEN c.revoked_at IS NULL THEN c.all_num - c.used_num - c.revoked_num ELSE 0 END
		AS unused,
	c.used_num AS used,
	CASE WHEN c.revoked_at IS NULL THEN c.revoked_num ELSE c.all_num - c.used_num END
		AS revoked,
	CASE WHEN c.kind = 'word' THEN (SELECT count(*) FROM user_coupon AS u
		WHERE u.coupon_id = c.coupon_id AND u.code = c.id::text) END AS redeemed,
	to_char(c.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	c.created_by,
	to_char(c.revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	c.revoked_by
FROM counted AS c LEFT JOIN code_space AS p ON p.id = c.space_id
ORDER BY c.id
