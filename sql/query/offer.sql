-- What is on offer, for gateways: the campaigns that are published and not hidden, and have not
-- ended. Times in ms since the epoch, 0 = no bound; end_ms: nothing is issued from then on.

-- offer_page: A page of all of them, in the order of their ids.
-- $1 after this id, $2 limit
SELECT id, name, array_to_string(tags, ',') AS tags,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	currency, amount_off, percent_off, cap, threshold, metadata::text AS metadata
FROM coupon
WHERE id > $1::bigint AND status = 'published' AND NOT hidden
	AND coalesce(least(end_at, valid_to) > now(), true)
ORDER BY id
LIMIT $2::int

-- offer_rows: Those among some coupons.
-- $1 coupons
SELECT id, name, array_to_string(tags, ',') AS tags,
	coalesce(floor(extract(epoch FROM begin_at) * 1000)::bigint, 0) AS begin_ms,
	coalesce(floor(extract(epoch FROM least(end_at, valid_to)) * 1000)::bigint, 0) AS end_ms,
	currency, amount_off, percent_off, cap, threshold, metadata::text AS metadata
FROM coupon
WHERE id = ANY ($1::bigint[]) AND status = 'published' AND NOT hidden
	AND coalesce(least(end_at, valid_to) > now(), true)
