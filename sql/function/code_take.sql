-- version: 1
-- function: code_take(bigint[],bigint[],uuid[],smallint[],text[],text[])
--
-- For settle(): takes the codes of receives, element by element, NULL and words excepted. Returns
-- those that do not get their code, and why. Of two receives with one code, the one with the lower
-- number gets it. A code that the same receive has taken before stays its own.
--
-- Waits for locks in the order of sets and serials.
CREATE OR REPLACE FUNCTION code_take(
	coupon  bigint[],
	seq     bigint[],
	batch   uuid[],
	idx     smallint[],
	user_id text[],
	code    text[])
RETURNS TABLE (ord bigint, reason text)
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	-- ON CONFLICT costs more than the row, and the second statement as much again. So at first
	-- all are inserted as if nobody had them.
	BEGIN
		INSERT INTO code (set_id, serial, coupon_id, state, user_id, batch, idx, used_at)
		SELECT split_part(r.code, '.', 1)::bigint AS set_id,
			split_part(r.code, '.', 2)::bigint AS serial, r.coupon, 'used', r.user_id,
			r.batch, r.idx, clock_timestamp()
		FROM (SELECT unnest(code_take.coupon) AS coupon, unnest(code_take.batch) AS batch,
				unnest(code_take.idx) AS idx, unnest(code_take.user_id) AS user_id,
				unnest(code_take.code) AS code) AS r
		WHERE strpos(r.code, '.') > 0
		ORDER BY set_id, serial;
		RETURN;
	EXCEPTION WHEN unique_violation THEN
		NULL;
	END;

	INSERT INTO code AS c (set_id, serial, coupon_id, state, user_id, batch, idx, used_at)
	SELECT DISTINCT ON (r.set_id, r.serial) r.set_id, r.serial, r.coupon, 'used', r.user_id,
		r.batch, r.idx, clock_timestamp()
	FROM (SELECT split_part(r.code, '.', 1)::bigint AS set_id,
			split_part(r.code, '.', 2)::bigint AS serial, r.*
		FROM unnest(code_take.coupon, code_take.seq, code_take.batch, code_take.idx,
				code_take.user_id, code_take.code)
			WITH ORDINALITY AS r (coupon, seq, batch, idx, user_id, code, ord)
		WHERE strpos(r.code, '.') > 0) AS r
	ORDER BY r.set_id, r.serial, r.seq, r.ord
	ON CONFLICT (set_id, serial) DO UPDATE
	SET state = 'used', user_id = excluded.user_id, batch = excluded.batch,
		idx = excluded.idx, used_at = excluded.used_at
	WHERE c.state = 'unused' AND c.coupon_id = excluded.coupon_id;

	-- A separate statement: it sees what the one before has waited for.
	RETURN QUERY
	SELECT r.ord, CASE c.state WHEN 'revoked' THEN 'code_invalid' ELSE 'code_used' END
	FROM unnest(code_take.coupon, code_take.batch, code_take.idx, code_take.user_id,
				code_take.code)
			WITH ORDINALITY AS r (coupon, batch, idx, user_id, code, ord)
		CROSS JOIN LATERAL (SELECT c.* FROM code AS c
			WHERE c.set_id = split_part(r.code, '.', 1)::bigint
				AND c.serial = split_part(r.code, '.', 2)::bigint
			LIMIT 1) AS c
	WHERE strpos(r.code, '.') > 0
		AND (c.state = 'used' AND c.coupon_id = r.coupon AND c.batch = r.batch
			AND c.idx = r.idx AND c.user_id = r.user_id) IS NOT TRUE;
END
$$;

REVOKE ALL ON FUNCTION code_take(bigint[], bigint[], uuid[], smallint[], text[], text[])
	FROM PUBLIC;
GRANT EXECUTE ON FUNCTION code_take(bigint[], bigint[], uuid[], smallint[], text[], text[])
	TO couponmq_app;
