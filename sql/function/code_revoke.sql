-- version: 1
-- function: code_revoke(bigint[],bigint[],bigint[])
--
-- Revokes codes, element by element, or all codes of a set (serial NULL); those that are used stay
-- as they are. Returns how many codes and sets were not revoked before. Counts as a change, by the
-- trigger of code_set. Locks the numbers of revocations, then codes, then coupons, as settle()
-- does.
--
-- Each revocation of codes of a coupon has a number. A generation that is opened later is filled
-- from a state that has it: what is accepted under it and claims such a code is too late. Which
-- receives of the present generation are, Redis knows: see sql_query_code_revocation_cut.
CREATE OR REPLACE FUNCTION code_revoke(
	code_set bigint[],
	serial   bigint[],
	coupon   bigint[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	made_by text := coalesce(nullif(current_setting('couponmq.by', true), ''), session_user);
	coupons bigint[] := ARRAY(SELECT DISTINCT r.id FROM unnest(code_revoke.coupon) AS r (id)
		ORDER BY r.id);
	own     record;
	revoked bigint := 0;
BEGIN
	-- Until the end of the transaction no other gets a number, so revocations are committed in
	-- the order of their numbers.
	PERFORM pg_advisory_xact_lock('code_revocation'::regclass::int, hashint8(r.id))
	FROM unnest(coupons) AS r (id);

	-- A separate statement: it sees what the one before has waited for.
	FOR own IN
		WITH n AS MATERIALIZED (
			SELECT c.id, c.revocation_num + 1 AS num FROM coupon AS c
			WHERE c.id = ANY (coupons)
		), codes AS (
			INSERT INTO code AS c (set_id, serial, coupon_id, state, revoked_at,
				revoked_by, revocation_num)
			SELECT DISTINCT g.set_id, g.serial, g.coupon_id, 'revoked', now(), made_by,
				n.num
			FROM unnest(code_revoke.code_set, code_revoke.serial, code_revoke.coupon)
					AS g (set_id, serial, coupon_id)
				JOIN n ON n.id = g.coupon_id
			WHERE g.serial IS NOT NULL
			ORDER BY g.set_id, g.serial
			ON CONFLICT (set_id, serial) DO UPDATE
			SET state = 'revoked', revoked_at = excluded.revoked_at,
				revoked_by = excluded.revoked_by,
				revocation_num = excluded.revocation_num
			WHERE c.state = 'unused'
			RETURNING c.coupon_id, c.revocation_num
		), sets AS (
			UPDATE code_set AS s
			SET revoked_at = now(), revoked_by = made_by, revocation_num = n.num
			FROM unnest(code_revoke.code_set, code_revoke.serial) AS g (set_id, serial),
				n
			WHERE g.serial IS NULL AND s.id = g.set_id AND s.revoked_at IS NULL
				AND n.id = s.coupon_id
			RETURNING s.coupon_id, s.revocation_num
		)
		SELECT new.coupon_id, new.revocation_num, count(*) AS num
		FROM (SELECT * FROM codes UNION ALL SELECT * FROM sets) AS new
		GROUP BY new.coupon_id, new.revocation_num ORDER BY new.coupon_id
	LOOP
		WITH numbered AS (
			UPDATE coupon AS c SET revocation_num = own.revocation_num
			WHERE c.id = own.coupon_id
			RETURNING c.generation
		)
		INSERT INTO code_revocation (coupon_id, num, generation)
		SELECT own.coupon_id, own.revocation_num, numbered.generation FROM numbered;
		revoked := revoked + own.num;
	END LOOP;
	RETURN revoked;
END
$$;
