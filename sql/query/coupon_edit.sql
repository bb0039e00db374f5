-- Gives a coupon new terms. No row: nothing differs, or there is no such coupon.
-- $1 coupon, $2 what is new: a JSON object with columns of the table
WITH wanted AS (
	SELECT w.* FROM coupon AS c, jsonb_populate_record(c, $2::jsonb) AS w
	WHERE c.id = $1::bigint
)
UPDATE coupon AS c
SET name = w.name, user_limit = w.user_limit, begin_at = w.begin_at, end_at = w.end_at,
	valid_days = w.valid_days, valid_from = w.valid_from, valid_to = w.valid_to,
	currency = w.currency, amount_off = w.amount_off, percent_off = w.percent_off,
	threshold = w.threshold, cap = w.cap, metadata = w.metadata,
	void_returns = w.void_returns, events_on = w.events_on, version = c.version + 1,
	updated_at = now()
FROM wanted AS w
WHERE c.id = w.id
	AND (c.name, c.user_limit, c.begin_at, c.end_at, c.valid_days, c.valid_from, c.valid_to,
		c.currency, c.amount_off, c.percent_off, c.threshold, c.cap, c.metadata,
		c.void_returns, c.events_on)
	IS DISTINCT FROM (w.name, w.user_limit, w.begin_at, w.end_at, w.valid_days, w.valid_from,
		w.valid_to, w.currency, w.amount_off, w.percent_off, w.threshold, w.cap, w.metadata,
		w.void_returns, w.events_on)
RETURNING c.version
