-- Creates a draft and returns its id. No row: the id is in use.
-- $1 id (NULL: the next free one), $2 name, $3 total, $4 limit per user, $5 begin, $6 end,
-- $7 days of validity, $8 valid from, $9 valid to
INSERT INTO coupon (id, name, total_num, user_limit, begin_at, end_at,
	valid_days, valid_from, valid_to)
SELECT coalesce($1::bigint, coupon_id_next()), $2::text, $3::bigint, $4::int,
	$5::timestamptz, $6::timestamptz, $7::int, $8::timestamptz, $9::timestamptz
ON CONFLICT (id) DO NOTHING
RETURNING id
