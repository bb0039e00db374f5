-- version: 1
-- function: code_revoke(bigint[],bigint[],bigint[])
--
-- Revokes codes, element by element; those that are used stay as they are. Returns how many were
-- not revoked before. Locks codes, then coupons, as settle() does.
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
	coupons bigint[];
	nums    bigint[];
	own     record;
	revoked bigint := 0;
BEGIN
	SELECT array_agg(r.id), array_agg(code_revocation_next(r.id)) INTO coupons, nums
	FROM (SELECT DISTINCT unnest(code_revoke.coupon) AS id ORDER BY id) AS r;

	FOR own IN
		WITH new AS (
			INSERT INTO code AS c (set_id, serial, coupon_id, state, revoked_at,
				revoked_by, revocation_num)
			SELECT DISTINCT g.set_id, g.serial, g.coupon_id, 'revoked', now(),
				coalesce(nullif(current_setting('couponmq.by', true), ''),
					session_user), n.num
			FROM unnest(code_revoke.code_set, code_revoke.serial, code_revoke.coupon)
					AS g (set_id, serial, coupon_id)
				JOIN unnest(coupons, nums) AS n (id, num) ON n.id = g.coupon_id
			ORDER BY g.set_id, g.serial
			ON CONFLICT (set_id, serial) DO UPDATE
			SET state = 'revoked', revoked_at = excluded.revoked_at,
				revoked_by = excluded.revoked_by,
				revocation_num = excluded.revocation_num
			WHERE c.state = 'unused'
			RETURNING c.coupon_id, c.revocation_num
		)
		SELECT new.coupon_id, new.revocation_num, count(*) AS num FROM new
		GROUP BY new.coupon_id, new.revocation_num ORDER BY new.coupon_id
	LOOP
		PERFORM code_revocation_add(own.coupon_id, own.revocation_num);
		revoked := revoked + own.num;
	END LOOP;
	RETURN revoked;
END
$$;
