-- Creates a draft and returns its id. No row: the id is in use.
-- $1 id (NULL: the next free one), $2 its terms: a JSON object with columns of the table
INSERT INTO coupon (id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from,
	valid_to, currency, amount_off, percent_off, threshold, cap, metadata, void_returns,
	events_on)
SELECT coalesce($1::bigint, coupon_id_next()), name, total_num, coalesce(user_limit, 1), begin_at,
	end_at, valid_days, valid_from, valid_to, currency, amount_off, percent_off, threshold, cap,
	metadata, coalesce(void_returns, true), coalesce(events_on, false)
FROM jsonb_populate_record(NULL::coupon, $2::jsonb)
ON CONFLICT (id) DO NOTHING
RETURNING id
