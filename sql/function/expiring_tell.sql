-- version: 1
-- function: expiring_tell(bigint,int)
--
-- Runs one step for a campaign with tell_before. Returns how many user coupons it has told, those
-- of a part with at most `most`, and whether the pass goes on; no row: another session is at it, or
-- the campaign asks for no events any more.
--
-- A user coupon is told when its end is tell_before away, if it was received by then: whoever
-- receives it later learns the end from coupon.issued. A pass tells those whose end has come within
-- that distance since the pass before. Each step is a transaction of its own:
--
--   1. Set told_to, under the lock of the coupon. From then on settle() tells by itself what it
--      issues late (event_add()), and notes it in expiry_late until the next step has ended: so
--      none is left out, and none told twice.
--   2. Read all user coupons of the campaign, without any lock, and write those that are to be
--      told to expiry_part, in the order of their ends. No index has that order: it would cost each
--      insert of every campaign.
--   3. Tell a part, under the lock of the coupon, and remove it, until there is none.
--   4. Find out when the next pass is due.
--
-- told_to goes back when tell_before becomes shorter, or the clock is set back. Then old_to and
-- old_before say who has been told already.
CREATE OR REPLACE FUNCTION expiring_tell(coupon_id bigint, most int)
RETURNS TABLE (told_num bigint, goes_on boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	asked  interval;
	c      record; -- the coupon
	n      expiry_notice;
	page   expiry_part;
	next   timestamptz;
BEGIN
	SELECT c.tell_before, c.valid_days, c.valid_to, c.issued_num,
		c.settled_at IS NOT NULL AS is_over
	INTO c
	FROM coupon AS c
	WHERE c.id = expiring_tell.coupon_id AND c.tell_before IS NOT NULL AND c.events_on;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	asked := c.tell_before * interval '1 s';

	-- ON CONFLICT would wait for another session that is at it.
	IF NOT EXISTS (SELECT FROM expiry_notice AS e WHERE e.coupon_id = expiring_tell.coupon_id)
	THEN
		INSERT INTO expiry_notice (coupon_id, told_to, before, next_at)
		VALUES (expiring_tell.coupon_id, moment, asked, '-infinity')
		ON CONFLICT DO NOTHING;
	END IF;
	SELECT * INTO n FROM expiry_notice AS e
	WHERE e.coupon_id = expiring_tell.coupon_id FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN;
	END IF;

	IF n.pass_from IS NULL THEN
		IF n.told_to > moment + asked THEN
			n.old_to := n.old_to || n.told_to;
			n.old_before := n.old_before || n.before;
			n.told_to := moment;
		END IF;
		PERFORM FROM coupon AS c WHERE c.id = n.coupon_id FOR NO KEY UPDATE;
		UPDATE expiry_notice AS e
		SET pass_from = greatest(n.told_to, moment), told_to = moment + asked,
			before = asked, is_read = false,
			(old_to, old_before) = (
				SELECT coalesce(array_agg(o.until), '{}'),
					coalesce(array_agg(o.before), '{}')
				FROM unnest(n.old_to, n.old_before) AS o (until, before)
				WHERE o.until > moment)
		WHERE e.coupon_id = n.coupon_id;
		RETURN QUERY SELECT 0::bigint, true;
		RETURN;
	END IF;

	IF NOT n.is_read THEN
		INSERT INTO expiry_part (coupon_id, part, user_id, slot, batch, idx)
		SELECT n.coupon_id, u.ord / expiring_tell.most, array_agg(u.user_id ORDER BY u.ord),
			array_agg(u.slot ORDER BY u.ord), array_agg(u.batch ORDER BY u.ord),
			array_agg(u.idx ORDER BY u.ord)
		FROM (
			SELECT u.user_id, u.slot, u.batch, u.idx, row_number()
				OVER (ORDER BY u.valid_to, u.user_id, u.slot) - 1 AS ord
			FROM user_coupon AS u
			WHERE u.coupon_id = n.coupon_id AND u.valid_to > n.pass_from
				AND u.valid_to <= n.told_to
				AND u.received_at <= u.valid_to - n.before
				AND NOT EXISTS (
					SELECT FROM unnest(n.old_to, n.old_before)
						AS o (until, before)
					WHERE u.valid_to <= o.until
						AND u.received_at <= u.valid_to - o.before)
		) AS u
		GROUP BY u.ord / expiring_tell.most;
		UPDATE expiry_notice AS e SET is_read = true WHERE e.coupon_id = n.coupon_id;
		RETURN QUERY SELECT 0::bigint, true;
		RETURN;
	END IF;

	SELECT * INTO page FROM expiry_part AS p
	WHERE p.coupon_id = n.coupon_id ORDER BY p.part LIMIT 1;
	IF FOUND THEN
		PERFORM FROM coupon AS c WHERE c.id = n.coupon_id FOR NO KEY UPDATE;
		PERFORM event_expiring_add(array_agg(n.coupon_id),
			array_agg(r.user_id ORDER BY r.ord), array_agg(r.slot ORDER BY r.ord),
			array_agg(r.batch ORDER BY r.ord), array_agg(r.idx ORDER BY r.ord))
		FROM unnest(page.user_id, page.slot, page.batch, page.idx)
			WITH ORDINALITY AS r (user_id, slot, batch, idx, ord)
		WHERE NOT EXISTS (SELECT FROM expiry_late AS l WHERE l.coupon_id = n.coupon_id
			AND l.user_id = r.user_id AND l.slot = r.slot)
		HAVING count(*) > 0;
		DELETE FROM expiry_part AS p
		WHERE p.coupon_id = n.coupon_id AND p.part = page.part;
		RETURN QUERY SELECT cardinality(page.user_id)::bigint, true;
		RETURN;
	END IF;

	-- It is due with the next end, of a user coupon or of one that may still be issued, but not
	-- at once, for it reads all rows again: that takes at most a twentieth of the time. While
	-- receives may come, it is due after a day at the latest.
	DELETE FROM expiry_late AS l WHERE l.coupon_id = n.coupon_id;
	SELECT min(u.valid_to) INTO next FROM user_coupon AS u
	WHERE u.coupon_id = n.coupon_id AND u.valid_to > n.told_to;
	IF NOT c.is_over THEN
		next := least(next, CASE WHEN c.valid_days IS NOT NULL
				THEN moment + c.valid_days * interval '24 hours'
				WHEN c.valid_to > n.told_to THEN c.valid_to END,
			moment + n.before + interval '1 day');
	END IF;
	UPDATE expiry_notice AS e
	SET pass_from = NULL, valid_days = c.valid_days, valid_to = c.valid_to,
		issued_num = c.issued_num,
		next_at = CASE WHEN next IS NULL THEN 'infinity' ELSE greatest(next - n.before,
			moment + greatest(least(n.before / 100, interval '1 hour'), interval '1 s',
				20 * (clock_timestamp() - moment))) END
	WHERE e.coupon_id = n.coupon_id;
	RETURN QUERY SELECT 0::bigint, false;
END
$$;
