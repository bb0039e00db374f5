-- version: 1
-- function: coupon_void(bigint,uuid,smallint,text,text)
--
-- Takes an issued receive back, for couponctl void. Whether its piece of the stock and its slot
-- come back, the terms of the campaign say. If so it becomes a rejected receive that is to be
-- freed in Redis; a late copy of its message meets that tombstone. Returns what was done:
--
--   voided    it was issued, and is voided now
--   again     it was voided before
--   rejected  it was rejected: there is nothing to take back
--   late      Redis is about to learn its outcome: try again
--   unknown   it is not settled, or was never accepted
--
-- and whether stock and slot come back, and the slot. With the slot its exchange code comes back.
--
-- Locks are waited for in the order of settle(): a code, then the coupon. settle() may wait for a
-- user coupon that this deletes, and never the other way round.
CREATE OR REPLACE FUNCTION coupon_void(
	coupon  bigint,
	batch   uuid,
	idx     smallint,
	user_id text,
	why     text)
RETURNS TABLE (result text, is_returned boolean, slot smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	held    user_coupon%ROWTYPE;
	voided  record;
	returns boolean;
BEGIN
	PERFORM FROM user_coupon AS u JOIN code AS c
		ON c.set_id = split_part(u.code, '.', 1)::bigint
			AND c.serial = nullif(split_part(u.code, '.', 2), '')::bigint
	WHERE u.user_id = coupon_void.user_id AND u.coupon_id = coupon_void.coupon
		AND u.batch = coupon_void.batch AND u.idx = coupon_void.idx
	FOR NO KEY UPDATE OF c;
	SELECT c.void_returns INTO returns FROM coupon AS c WHERE c.id = coupon_void.coupon
	FOR NO KEY UPDATE;
	-- Further statements: they see what the lock was waited for.
	SELECT u.* INTO held FROM user_coupon AS u
	WHERE u.user_id = coupon_void.user_id AND u.coupon_id = coupon_void.coupon
		AND u.batch = coupon_void.batch AND u.idx = coupon_void.idx;
	SELECT v.* INTO voided FROM coupon_void AS v
	WHERE v.coupon_id = coupon_void.coupon AND v.batch = coupon_void.batch
		AND v.idx = coupon_void.idx AND v.user_id = coupon_void.user_id;
	IF FOUND THEN
		RETURN QUERY VALUES ('again', voided.is_returned, voided.slot);
	ELSIF held.user_id IS NULL THEN
		RETURN QUERY SELECT CASE WHEN EXISTS (SELECT FROM receive_rejected AS t
				WHERE t.coupon_id = coupon_void.coupon
					AND t.batch = coupon_void.batch AND t.idx = coupon_void.idx)
			THEN 'rejected' ELSE 'unknown' END, false, 0::smallint;
	ELSIF EXISTS (SELECT FROM coupon_late AS l WHERE l.coupon_id = coupon_void.coupon
			AND l.batch = coupon_void.batch AND l.idx = coupon_void.idx) THEN
		RETURN QUERY VALUES ('late', false, held.slot);
	ELSE
		INSERT INTO coupon_void
			(coupon_id, batch, idx, user_id, slot, is_returned, key, why, voided_by)
		VALUES (held.coupon_id, held.batch, held.idx, held.user_id, held.slot, returns,
			held.key, coupon_void.why,
			coalesce(nullif(current_setting('couponmq.by', true), ''), session_user));
		IF returns THEN
			DELETE FROM user_coupon AS u
			WHERE u.user_id = held.user_id AND u.coupon_id = held.coupon_id
				AND u.slot = held.slot;
			PERFORM code_free(ARRAY[held.coupon_id], ARRAY[held.batch], ARRAY[held.idx],
				ARRAY[held.code]);
			INSERT INTO receive_rejected
				(coupon_id, batch, idx, user_id, slot, reason, received_at)
			VALUES (held.coupon_id, held.batch, held.idx, held.user_id, held.slot,
				'voided', held.received_at);
			UPDATE coupon AS c SET issued_num = c.issued_num - 1
			WHERE c.id = held.coupon_id;
		END IF;
		PERFORM change_note(false);
		RETURN QUERY VALUES ('voided', returns, held.slot);
	END IF;
END
$$;
