-- version: 1
-- function: coupon_recover_rejected(bigint,uuid[],smallint[],text[],smallint[],text[],bigint[],smallint[])
--
-- Records rejected receives that PostgreSQL does not have any more, and returns the positions of
-- those that it did not have. Those that hold a slot in Redis (1 in `held`, else 0) are to be
-- freed there. A voided one may be an issued one at the moment to which PostgreSQL was put back:
-- that is undone, for who may void receives.
CREATE OR REPLACE FUNCTION coupon_recover_rejected(
	own      bigint,   -- the coupon
	batches  uuid[],
	idxs     smallint[],
	users    text[],
	slots    smallint[],
	reasons  text[],
	times_ms bigint[], -- of their acceptance
	held     smallint[])
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	undone record;
BEGIN
	IF NOT has_function_privilege(session_user,
			'coupon_void(bigint,uuid,smallint,text,text)', 'EXECUTE')
		AND EXISTS (SELECT FROM unnest(batches, idxs, reasons) AS r (batch, idx, reason)
			WHERE reason IN ('voided', 'void_kept') AND NOT EXISTS (
				SELECT FROM coupon_void AS v WHERE v.coupon_id = own
					AND v.batch = r.batch AND v.idx = r.idx)) THEN
		RAISE EXCEPTION 'a void of coupon % is missing, which an operator brings back', own
			USING ERRCODE = 'insufficient_privilege';
	END IF;
	RETURN QUERY
	WITH r AS (
		SELECT * FROM unnest(batches, idxs, users, slots, reasons, times_ms, held)
			WITH ORDINALITY AS r (batch, idx, user_id, slot, reason, at_ms, holds, ord)
	), added AS (
		INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,
			received_at, freed_at)
		SELECT own, batch, idx, user_id, slot, reason,
			timestamptz 'epoch' + at_ms * interval '1 ms',
			CASE holds WHEN 0 THEN now() END
		FROM r
		WHERE reason <> 'void_kept'
		ON CONFLICT DO NOTHING
		RETURNING batch, idx
	), voided AS (
		INSERT INTO coupon_void (coupon_id, batch, idx, user_id, slot, is_returned, key,
			why, voided_by)
		SELECT own, r.batch, r.idx, r.user_id, r.slot, reason = 'voided', u.key, NULL,
			'couponctl recover'
		FROM r LEFT JOIN user_coupon AS u ON u.user_id = r.user_id AND u.coupon_id = own
			AND u.batch = r.batch AND u.idx = r.idx
		WHERE reason IN ('voided', 'void_kept')
		ON CONFLICT DO NOTHING
		RETURNING batch, idx
	)
	SELECT min(r.ord) AS ord
	FROM r JOIN (SELECT * FROM added UNION SELECT * FROM voided) AS new USING (batch, idx)
	GROUP BY batch, idx;

	WITH gone AS (
		DELETE FROM user_coupon AS u
		USING unnest(batches, idxs, users, reasons) AS r (batch, idx, user_id, reason)
		WHERE r.reason = 'voided' AND u.user_id = r.user_id AND u.coupon_id = own
			AND u.batch = r.batch AND u.idx = r.idx
		RETURNING u.batch, u.idx, u.code
	)
	SELECT count(*) AS num, array_agg(own) AS coupons, array_agg(batch) AS batches,
		array_agg(idx) AS idxs, array_agg(code) AS codes
	INTO undone FROM gone;
	IF undone.num > 0 THEN
		PERFORM code_free(undone.coupons, undone.batches, undone.idxs, undone.codes);
		UPDATE coupon SET issued_num = issued_num - undone.num WHERE id = own;
	END IF;
END
$$;
