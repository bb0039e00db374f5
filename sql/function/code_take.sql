-- version: 1
-- function: code_take(bigint[],int[],bigint[],uuid[],smallint[],text[],text[])
--
-- For settle(): takes the codes of receives, element by element, NULL and words excepted. Returns
-- those that do not get their code, and why. Of two receives with one code, the one with the lower
-- number gets it. A code that the same receive has taken before stays its own. A revoked code, word
-- or set is refused to receives that were accepted after its revocation (code_revocation); what was
-- accepted before gets it, however late its message arrives. A code that was used or revoked when
-- it was imported is refused to all.
--
-- Waits for locks in the order of sets and serials.
CREATE OR REPLACE FUNCTION code_take(
	coupon     bigint[],
	generation int[],
	seq        bigint[],
	batch      uuid[],
	idx        smallint[],
	user_id    text[],
	code       text[])
RETURNS TABLE (ord bigint, reason text)
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	late bigint[]; -- accepted after the revocation
BEGIN
	-- Sets and words.
	SELECT array_agg(r.ord) INTO late
	FROM unnest(code_take.generation, code_take.seq, code_take.code) WITH ORDINALITY
			AS r (generation, seq, code, ord)
		JOIN (SELECT one.set_id, v.generation, v.seq
			FROM (SELECT DISTINCT split_part(r.code, '.', 1)::bigint AS set_id
					FROM unnest(code_take.code) AS r (code)
					WHERE r.code IS NOT NULL) AS one
				CROSS JOIN LATERAL (SELECT s.coupon_id, s.kind, s.revocation_num,
						(SELECT c.revocation_num FROM code AS c
						WHERE c.set_id = s.id AND c.serial = 0
							AND s.kind = 'word' LIMIT 1) AS word_num
					FROM code_set AS s WHERE s.id = one.set_id LIMIT 1) AS s
				CROSS JOIN LATERAL (SELECT v.generation, v.seq
					FROM code_revocation AS v
					WHERE v.coupon_id = s.coupon_id
						AND v.num = least(s.revocation_num, s.word_num)
					LIMIT 1) AS v) AS v
			ON v.set_id = split_part(r.code, '.', 1)::bigint
	WHERE (r.generation, r.seq) > (v.generation, coalesce(v.seq, 9223372036854775807));

	-- ON CONFLICT costs more than the row, and the second statement as much again. So at first
	-- all are inserted as if nobody had them.
	IF late IS NULL THEN
		BEGIN
			INSERT INTO code (set_id, serial, coupon_id, state, user_id, batch, idx,
				used_at)
			SELECT split_part(r.code, '.', 1)::bigint AS set_id,
				split_part(r.code, '.', 2)::bigint AS serial, r.coupon, 'used',
				r.user_id, r.batch, r.idx, clock_timestamp()
			FROM (SELECT unnest(code_take.coupon) AS coupon,
					unnest(code_take.batch) AS batch,
					unnest(code_take.idx) AS idx,
					unnest(code_take.user_id) AS user_id,
					unnest(code_take.code) AS code) AS r
			WHERE strpos(r.code, '.') > 0
			ORDER BY set_id, serial;
			RETURN;
		EXCEPTION WHEN unique_violation THEN
			NULL;
		END;
	END IF;

	-- Codes.
	SELECT late || array_agg(r.ord) INTO late
	FROM unnest(code_take.generation, code_take.seq, code_take.code) WITH ORDINALITY
			AS r (generation, seq, code, ord)
		CROSS JOIN LATERAL (SELECT c.coupon_id, c.revocation_num FROM code AS c
			WHERE c.set_id = split_part(r.code, '.', 1)::bigint
				AND c.serial = split_part(r.code, '.', 2)::bigint
				AND c.revocation_num >= 0
			LIMIT 1) AS c
		LEFT JOIN LATERAL (SELECT v.generation, v.seq FROM code_revocation AS v
			WHERE v.coupon_id = c.coupon_id AND v.num = c.revocation_num
			LIMIT 1) AS v ON true
	WHERE strpos(r.code, '.') > 0 AND (c.revocation_num = 0
		OR (r.generation, r.seq) > (v.generation, coalesce(v.seq, 9223372036854775807)));
	late := coalesce(late, '{}');

	INSERT INTO code AS c (set_id, serial, coupon_id, state, user_id, batch, idx, used_at)
	SELECT DISTINCT ON (r.set_id, r.serial) r.set_id, r.serial, r.coupon, 'used', r.user_id,
		r.batch, r.idx, clock_timestamp()
	FROM (SELECT split_part(r.code, '.', 1)::bigint AS set_id,
			split_part(r.code, '.', 2)::bigint AS serial, r.*
		FROM unnest(code_take.coupon, code_take.seq, code_take.batch, code_take.idx,
				code_take.user_id, code_take.code)
			WITH ORDINALITY AS r (coupon, seq, batch, idx, user_id, code, ord)
		WHERE strpos(r.code, '.') > 0 AND r.ord <> ALL (late)) AS r
	ORDER BY r.set_id, r.serial, r.seq, r.ord
	ON CONFLICT (set_id, serial) DO UPDATE
	SET state = 'used', user_id = excluded.user_id, batch = excluded.batch,
		idx = excluded.idx, used_at = excluded.used_at
	WHERE c.state <> 'used' AND c.coupon_id = excluded.coupon_id;

	-- A separate statement: it sees what the one before has waited for.
	RETURN QUERY
	SELECT o, 'code_invalid' FROM unnest(late) AS o
	UNION ALL
	SELECT r.ord, CASE c.state WHEN 'revoked' THEN 'code_invalid' ELSE 'code_used' END
	FROM unnest(code_take.coupon, code_take.batch, code_take.idx, code_take.user_id,
				code_take.code)
			WITH ORDINALITY AS r (coupon, batch, idx, user_id, code, ord)
		CROSS JOIN LATERAL (SELECT c.* FROM code AS c
			WHERE c.set_id = split_part(r.code, '.', 1)::bigint
				AND c.serial = split_part(r.code, '.', 2)::bigint
			LIMIT 1) AS c
	WHERE strpos(r.code, '.') > 0 AND r.ord <> ALL (late)
		AND (c.state = 'used' AND c.coupon_id = r.coupon AND c.batch = r.batch
			AND c.idx = r.idx AND c.user_id = r.user_id) IS NOT TRUE;
END
$$;
