-- What orders do with receives, and the budgets.

-- use: Executes operations on receives; see sql/function/use.sql. Then a row with of_op 0, and as
-- its record the number of this transaction, as of settle.
-- $1 actions, $2 orders, $3 keys, $4 API keys ('' = none), $5 seconds of a hold, $6 amounts (NULL:
-- not told), $7 currencies ('' = none), $8 reasons ('' = none): arrays of one length; $9 positions
-- in these, from 1, $10 coupons, $11 users, $12 batches (NULL: any receive), $13 indexes: arrays of
-- one length; $14 traces: no elements, or as many as actions, and '' = none
SELECT of_op, result, coupon_id, of_user, of_batch, of_idx, until_ms, amount_off, of_currency,
	now_state, now_is_own, now_until_ms, record
FROM use($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::text[],
	$8::text[], $9::int[], $10::bigint[], $11::text[], $12::uuid[], $13::smallint[],
	$14::text[])
UNION ALL SELECT 0, 'changed', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
	change_note(true)

-- use_free: Ends holds that are over; see sql/function/use_free.sql. Returns how many.
-- $1 at most
SELECT use_free(NULL, $1::int) AS freed

-- use_forget: Removes old rows of operations that changed nothing; see sql/function/use_forget.sql.
-- Returns how many.
-- $1 seconds, $2 at most
SELECT use_forget($1::int, $2::int) AS removed

-- quote: What the terms of a coupon take off an amount; amount_off NULL: they name no discount. No
-- row: no coupon that clients can see. is_usable: use() refuses the amount unless it is true.
-- $1 coupon, $2 amount, in the smallest unit of the currency
SELECT currency, off AS amount_off, off IS DISTINCT FROM 0 AS is_usable
FROM coupon, discount(amount_off, percent_off, threshold, cap, $2::bigint) AS off
WHERE id = $1::bigint AND status <> 'draft'

-- quote_user: The receives of a user that an order of this amount could use now: those that take
-- most off it first, of equal ones those whose validity ends first. A budget must have what its
-- receive takes. amount_off NULL: the terms name no discount.
-- $1 user, $2 amount, in the smallest unit of the currency, $3 currency, $4 limit
SELECT u.coupon_id, u.batch, u.idx, u.slot, c.name, off AS amount_off,
	to_char(u.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to
FROM user_coupon AS u JOIN coupon AS c ON c.id = u.coupon_id
	LEFT JOIN budget AS b ON b.name = c.budget,
	discount(c.amount_off, c.percent_off, c.threshold, c.cap, $2::bigint) AS off
WHERE u.user_id = $1::text AND u.valid_from <= now() AND (u.valid_to <= now()) IS NOT TRUE
	AND coalesce(c.currency = $3::text, true) AND off IS DISTINCT FROM 0
	AND coalesce(b.amount - b.held - b.spent >= off, true)
	AND NOT EXISTS (SELECT FROM receive_use AS s
		WHERE s.coupon_id = u.coupon_id AND s.batch = u.batch AND s.idx = u.idx
			AND s.state <> 'free' AND (s.until <= now()) IS NOT TRUE)
	AND NOT EXISTS (SELECT FROM coupon_void AS v
		WHERE v.coupon_id = u.coupon_id AND v.batch = u.batch AND v.idx = u.idx)
ORDER BY coalesce(off, 0) DESC, u.valid_to, u.received_at, u.coupon_id, u.slot
LIMIT $4::int

-- uses_latest: The numbers of the latest operations that have changed a receive.
SELECT num FROM use_operation WHERE to_state IS NOT NULL AND action <> 'expire'
ORDER BY num DESC LIMIT 1000

-- uses_page: Records of operations, as use() returns them, the latest first.
-- $1 below this number, $2 not older than so many seconds, $3 limit
SELECT num, json_build_array(1, num, extract(epoch FROM at), coupon_id::text, user_id, batch, idx,
		action, key, by_key, order_id, result, from_state, to_state,
		extract(epoch FROM until), amount, currency, amount_off, budget, reason)::text
	AS record
FROM (
	SELECT * FROM use_operation
	WHERE to_state IS NOT NULL AND action <> 'expire' AND num < $1::bigint
	ORDER BY num DESC LIMIT $3::int
) AS page
WHERE at > now() - $2::bigint * interval '1 s'
ORDER BY num DESC
