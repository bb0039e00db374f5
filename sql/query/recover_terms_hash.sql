-- The same with the terms by which Redis decides, which may be newer than the row that it has. A
-- new coupon has no other name and no end of validity.
-- $1 coupon, $2 status in Redis, $3 total, $4 limit per user, $5 begin and $6 end (ms, 0 = no
-- bound), $7 version
INSERT INTO coupon (id, name, status, total_num, user_limit, begin_at, end_at, version)
SELECT $1::bigint, 'recovered ' || $1::bigint,
	CASE $2::text WHEN 'open' THEN 'published' ELSE $2::text END, $3::bigint, $4::int,
	timestamptz 'epoch' + nullif($5::bigint, 0) * interval '1 ms',
	timestamptz 'epoch' + nullif($6::bigint, 0) * interval '1 ms', $7::int
ON CONFLICT (id) DO UPDATE
SET status = excluded.status, total_num = excluded.total_num, user_limit = excluded.user_limit,
	begin_at = excluded.begin_at, end_at = excluded.end_at, version = excluded.version,
	updated_at = now()
WHERE coupon.version < excluded.version
RETURNING version, xmax = 0 AS is_new
