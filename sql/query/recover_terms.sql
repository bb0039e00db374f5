-- Creates a coupon with the terms that Redis has, or gives it those terms if their version is
-- higher. No row: it has them, or later ones.
-- $1 coupon, $2 its row, as of to_jsonb()
INSERT INTO coupon (id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from,
	valid_to, currency, amount_off, percent_off, threshold, cap, metadata, void_returns,
	events_on, status, version, created_at, updated_at)
SELECT id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from, valid_to,
	currency, amount_off, percent_off, threshold, cap, metadata, coalesce(void_returns, true),
	coalesce(events_on, false), status, version, created_at, updated_at
FROM jsonb_populate_record(NULL::coupon, $2::jsonb)
WHERE id = $1::bigint
ON CONFLICT (id) DO UPDATE
SET name = excluded.name, total_num = excluded.total_num, user_limit = excluded.user_limit,
	begin_at = excluded.begin_at, end_at = excluded.end_at, valid_days = excluded.valid_days,
	valid_from = excluded.valid_from, valid_to = excluded.valid_to,
	currency = excluded.currency, amount_off = excluded.amount_off,
	percent_off = excluded.percent_off, threshold = excluded.threshold, cap = excluded.cap,
	metadata = excluded.metadata, void_returns = excluded.void_returns,
	events_on = excluded.events_on, status = excluded.status,
	version = excluded.version, updated_at = excluded.updated_at
WHERE coupon.version < excluded.version
RETURNING version, xmax = 0 AS is_new
