-- version: 1
-- function: event_expiring_add(bigint[],text[],smallint[],uuid[],smallint[])
--
-- Writes the events coupon.expiring of user coupons of coupons with events, in rows of event_log of
-- up to 1,000 events. Element i of the arrays is one user coupon. One that is gone, voided, used or
-- at its end has no event. The caller holds the locks of the coupons, so none is voided meanwhile;
-- orders lock receives, so one may be used meanwhile.
CREATE OR REPLACE FUNCTION event_expiring_add(
	coupon  bigint[],
	user_id text[],
	slot    smallint[],
	batch   uuid[],
	idx     smallint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, slot, key, at_ms, detail)
	SELECT 'coupon.expiring', count(*),
		CASE WHEN min(u.coupon_id) = max(u.coupon_id) THEN ARRAY[min(u.coupon_id)]
			ELSE array_agg(u.coupon_id ORDER BY u.ord) END,
		array_agg(u.batch ORDER BY u.ord), array_agg(u.idx ORDER BY u.ord),
		array_agg(u.user_id ORDER BY u.ord), array_agg(u.slot ORDER BY u.ord),
		array_agg(coalesce(u.key, '') ORDER BY u.ord),
		array_agg(floor(extract(epoch FROM u.received_at) * 1000)::bigint ORDER BY u.ord),
		array_agg(jsonb_build_object(
			'valid_from', to_char(u.valid_from AT TIME ZONE 'UTC',
				'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
			'valid_to', to_char(u.valid_to AT TIME ZONE 'UTC',
				'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY u.ord)
	FROM (
		SELECT r.ord, u.*
		FROM unnest(event_expiring_add.coupon, event_expiring_add.user_id,
				event_expiring_add.slot, event_expiring_add.batch,
				event_expiring_add.idx)
				WITH ORDINALITY AS r (coupon, user_id, slot, batch, idx, ord)
			CROSS JOIN LATERAL (SELECT u.* FROM user_coupon AS u
				WHERE u.user_id = r.user_id AND u.coupon_id = r.coupon
					AND u.slot = r.slot AND u.batch = r.batch
					AND u.idx = r.idx AND u.valid_to > clock_timestamp()
				LIMIT 1) AS u
		-- A look-up for each, not a join: see settle().
		WHERE (SELECT true FROM coupon_void AS v WHERE v.coupon_id = u.coupon_id
				AND v.batch = u.batch AND v.idx = u.idx LIMIT 1) IS NULL
			AND (SELECT s.state FROM receive_use AS s WHERE s.coupon_id = u.coupon_id
				AND s.batch = u.batch AND s.idx = u.idx LIMIT 1)
				IS DISTINCT FROM 'used'
	) AS u
	GROUP BY (u.ord - 1) / 1000
	ORDER BY (u.ord - 1) / 1000;
END
$$;
