-- Revokes codes; those that are used stay as they are. Returns how many were not revoked before.
-- $1 sets, $2 serials, $3 coupons: arrays of one length
WITH revoked AS (
	INSERT INTO code (set_id, serial, coupon_id, state, revoked_at, revoked_by)
	SELECT DISTINCT g.set_id, g.serial, g.coupon_id, 'revoked', now(),
		coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (set_id, serial, coupon_id)
	ORDER BY g.set_id, g.serial
	ON CONFLICT (set_id, serial) DO UPDATE
	SET state = 'revoked', revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by
	WHERE code.state = 'unused'
	RETURNING 1
)
SELECT count(*) AS revoked FROM revoked
