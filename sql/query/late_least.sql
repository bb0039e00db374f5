-- Of each of these coupons, in their order, the last late outcome that Redis must have counted.
-- $1 coupons
SELECT coalesce(late_num, 0) -
	(SELECT count(*) FROM coupon_late AS l WHERE l.coupon_id = ids.id) AS late_least
FROM unnest($1::bigint[]) WITH ORDINALITY AS ids (id, place)
LEFT JOIN coupon ON coupon.id = ids.id
ORDER BY ids.place
