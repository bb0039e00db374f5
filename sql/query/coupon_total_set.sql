-- Sets the total of a coupon, unless it is less than the number issued. Returns the resulting
-- total, which differs from the wanted one if that is too low. No row: no such coupon.
-- $1 coupon, $2 wanted total
WITH old AS (
	SELECT id, status, total_num, issued_num, version FROM coupon
	WHERE id = $1::bigint FOR NO KEY UPDATE
), changed AS (
	UPDATE coupon
	SET total_num = $2::bigint, version = coupon.version + 1, updated_at = now()
	FROM old
	WHERE coupon.id = old.id AND $2::bigint >= old.issued_num
		AND $2::bigint <> old.total_num
	RETURNING coupon.id, coupon.total_num, coupon.version
)
SELECT old.id::text, old.status, old.total_num AS old_total_num,
	coalesce(changed.total_num, old.total_num) AS total_num, old.issued_num,
	coalesce(changed.version, old.version) AS version
FROM old LEFT JOIN changed ON changed.id = old.id
