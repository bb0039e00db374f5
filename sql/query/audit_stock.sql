-- Promise P1: one row for each coupon that is issued beyond its total, or whose count differs from
-- its rows (including rows whose coupon does not exist).
-- $1 coupon (NULL: all)
SELECT coalesce(c.id, u.coupon_id)::text AS coupon_id, c.total_num, c.issued_num,
	coalesce(u.row_num, 0) AS row_num
FROM (SELECT id, total_num, issued_num FROM coupon
		WHERE $1::bigint IS NULL OR id = $1::bigint) AS c
	FULL JOIN (SELECT coupon_id, count(*) AS row_num FROM user_coupon
		WHERE $1::bigint IS NULL OR coupon_id = $1::bigint
		GROUP BY coupon_id) AS u ON u.coupon_id = c.id
WHERE c.id IS NULL OR c.issued_num <> coalesce(u.row_num, 0) OR c.issued_num > c.total_num
ORDER BY coalesce(c.id, u.coupon_id)
