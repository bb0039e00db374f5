-- version: 1
-- function: event_add(bigint[],bigint[],uuid[],smallint[],text[],smallint[],text[],bigint[],text[],pg_snapshot,text[])
--
-- Writes the events coupon.issued of one call of settle(), in one row of event_log. settle() calls
-- it for coupons with events, while it holds the locks of all its coupons: so the row's id is in
-- the order of their commits. What is settled so late that expiring_tell() has passed its end gets
-- its coupon.expiring here, too.
--
-- `coupon_ids` are the coupons, each once. Element i of the other arrays is one receive. `state` is
-- NULL if all of them were issued.
--
-- A user coupon is valid by the terms that were visible when it was inserted. `seen` is a snapshot
-- from before: if it has the transaction that last set the terms, these are still the same. If not,
-- one row is read for each coupon and time: what was accepted in one millisecond was inserted by
-- one statement, and is valid for the same time.
CREATE OR REPLACE FUNCTION event_add(
	coupon_ids bigint[],
	coupon     bigint[],
	batch      uuid[],
	idx        smallint[],
	user_id    text[],
	slot       smallint[],
	key        text[],
	at_ms      bigint[],
	state      text[],
	seen       pg_snapshot,
	trace      text[])      -- NULL: no receive has one
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	on_ids        bigint[]; -- those that have events on
	are_same      boolean;  -- their terms of validity, as they were seen by the insert
	are_told      boolean;  -- one of them has tell_before
	valid_coupon  bigint[];
	valid_at_ms   bigint[];
	valid_from_ms bigint[];
	valid_days    int[];
	valid_to_ms   bigint[];
	late_coupon   bigint[]; -- what is told here
	late_user     text[];
	late_slot     smallint[];
	late_batch    uuid[];
	late_idx      smallint[];
BEGIN
	SELECT array_agg(c.id),
		bool_and(c.valid_xid IS NULL
			OR pg_visible_in_snapshot(c.valid_xid, event_add.seen)),
		bool_or(c.tell_before IS NOT NULL),
		array_agg(0),
		array_agg(coalesce(floor(extract(epoch FROM c.valid_from) * 1000)::bigint, 0)),
		array_agg(coalesce(c.valid_days, 0)),
		array_agg(coalesce(floor(extract(epoch FROM c.valid_to) * 1000)::bigint, 0))
	INTO on_ids, are_same, are_told, valid_at_ms, valid_from_ms, valid_days, valid_to_ms
	FROM coupon AS c
	WHERE c.id = ANY (event_add.coupon_ids) AND c.events_on;
	valid_coupon := on_ids;
	IF on_ids IS NULL THEN
		RETURN;
	END IF;

	IF event_add.state IS NOT NULL
		OR cardinality(on_ids) < cardinality(event_add.coupon_ids) THEN
		PERFORM event_add(on_ids, array_agg(r.coupon ORDER BY r.ord),
			array_agg(r.batch ORDER BY r.ord), array_agg(r.idx ORDER BY r.ord),
			array_agg(r.user_id ORDER BY r.ord), array_agg(r.slot ORDER BY r.ord),
			array_agg(r.key ORDER BY r.ord), array_agg(r.at_ms ORDER BY r.ord), NULL,
			event_add.seen, CASE WHEN event_add.trace IS NOT NULL THEN
				array_agg(r.trace ORDER BY r.ord) END)
		FROM (
			SELECT unnest(event_add.coupon) AS coupon, unnest(event_add.batch) AS batch,
				unnest(event_add.idx) AS idx, unnest(event_add.user_id) AS user_id,
				unnest(event_add.slot) AS slot, unnest(event_add.key) AS key,
				unnest(event_add.at_ms) AS at_ms,
				unnest(event_add.state) AS state,
				unnest(event_add.trace) AS trace,
				generate_subscripts(event_add.coupon, 1) AS ord
		) AS r
		WHERE r.coupon = ANY (on_ids)
			AND (event_add.state IS NULL OR r.state = 'issued')
		HAVING count(*) > 0;
		RETURN;
	END IF;

	IF NOT are_same THEN
		SELECT array_agg(one_each.coupon), array_agg(one_each.at_ms),
			array_agg(floor(extract(epoch FROM u.valid_from) * 1000)::bigint), '{}',
			array_agg(coalesce(floor(extract(epoch FROM u.valid_to) * 1000)::bigint, 0))
		INTO valid_coupon, valid_at_ms, valid_from_ms, valid_days, valid_to_ms
		FROM (
			SELECT r.coupon, r.at_ms, min(r.ord) AS ord
			FROM (SELECT unnest(event_add.coupon) AS coupon,
				unnest(event_add.at_ms) AS at_ms,
				generate_subscripts(event_add.coupon, 1) AS ord) AS r
			GROUP BY r.coupon, r.at_ms
		) AS one_each CROSS JOIN LATERAL (
			SELECT u.valid_from, u.valid_to FROM user_coupon AS u
			WHERE u.user_id = event_add.user_id[one_each.ord]
				AND u.coupon_id = one_each.coupon
				AND u.slot = event_add.slot[one_each.ord]
			LIMIT 1
		) AS u;
	END IF;

	INSERT INTO event_log (type, num, coupon, batch, idx, user_id, slot, key, at_ms,
		trace, valid_coupon, valid_at_ms, valid_from_ms, valid_days, valid_to_ms)
	VALUES ('coupon.issued', cardinality(event_add.batch),
		CASE cardinality(on_ids) WHEN 1 THEN on_ids ELSE event_add.coupon END,
		event_add.batch, event_add.idx, event_add.user_id, event_add.slot, event_add.key,
		event_add.at_ms, event_add.trace, valid_coupon, valid_at_ms, valid_from_ms,
		valid_days, valid_to_ms);

	IF are_told THEN
		WITH late AS (
			SELECT u.*
			FROM (SELECT unnest(event_add.coupon) AS coupon,
					unnest(event_add.user_id) AS user_id,
					unnest(event_add.slot) AS slot) AS r
				CROSS JOIN LATERAL (SELECT u.coupon_id, u.user_id, u.slot, u.batch,
						u.idx, u.valid_to > e.pass_from AND NOT e.is_read
							AS is_noted
					FROM user_coupon AS u, coupon AS c, expiry_notice AS e
					WHERE u.user_id = r.user_id AND u.coupon_id = r.coupon
						AND u.slot = r.slot AND c.id = r.coupon
						AND c.tell_before IS NOT NULL
						AND e.coupon_id = r.coupon
						AND EXISTS (
							SELECT FROM unnest(e.told_to || e.old_to,
								e.before || e.old_before)
								AS o (until, before)
							WHERE u.valid_to <= o.until
								AND u.received_at
								<= u.valid_to - o.before)
					LIMIT 1) AS u
		), noted AS (
			INSERT INTO expiry_late (coupon_id, user_id, slot)
			SELECT l.coupon_id, l.user_id, l.slot FROM late AS l WHERE l.is_noted
			ON CONFLICT DO NOTHING
		)
		SELECT array_agg(l.coupon_id), array_agg(l.user_id), array_agg(l.slot),
			array_agg(l.batch), array_agg(l.idx)
		INTO late_coupon, late_user, late_slot, late_batch, late_idx
		FROM late AS l;
		IF late_coupon IS NOT NULL THEN
			PERFORM event_expiring_add(late_coupon, late_user, late_slot, late_batch,
				late_idx);
		END IF;
	END IF;
END
$$;
