-- version: 1
-- function: expiring_tell(bigint,int)
--
-- Does a step of telling the ends of the user coupons of a campaign with tell_before: writes the
-- event coupon.expiring of at most so many. Returns how many it looked at, and whether the pass
-- goes on; no row: another session is at it, or there is nothing to tell any more.
--
-- A user coupon is told when its end is tell_before away, if it was received by then: whoever
-- receives it later learns the end with coupon.issued. A pass tells those whose end came within
-- that distance since the pass before. It begins with a step that only raises told_to, under the
-- lock of the coupon. From then on settle() tells by itself what it issues late (event_add()), and
-- notes it in expiry_late for the steps that read meanwhile: so none is left out, nor told twice.
--
-- The user coupons of a page are read before the coupon is locked, in the order of their ends,
-- users and slots. No index has that order: it would cost each insert of every campaign. So each
-- page reads all rows of the campaign; 20,000 of them are a page, and that of a million is read 50
-- times.
CREATE OR REPLACE FUNCTION expiring_tell(coupon_id bigint, most int)
RETURNS TABLE (looked_num bigint, goes_on boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	before interval;
	c      record; -- the coupon
	n      expiry_notice;
	page   record;
	next   timestamptz;
BEGIN
	SELECT c.tell_before, c.version, c.valid_days, c.valid_to,
		c.settled_at IS NOT NULL AS is_over
	INTO c
	FROM coupon AS c
	WHERE c.id = expiring_tell.coupon_id AND c.tell_before IS NOT NULL AND c.events_on;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	before := c.tell_before * interval '1 s';

	-- ON CONFLICT would wait for another session that is at it.
	IF NOT EXISTS (SELECT FROM expiry_notice AS e WHERE e.coupon_id = expiring_tell.coupon_id)
	THEN
		INSERT INTO expiry_notice (coupon_id, told_to, next_at, version, looked_at)
		VALUES (expiring_tell.coupon_id, moment, '-infinity', 0, moment)
		ON CONFLICT DO NOTHING;
	END IF;
	SELECT * INTO n FROM expiry_notice AS e
	WHERE e.coupon_id = expiring_tell.coupon_id FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN;
	END IF;

	IF n.pass_from IS NULL THEN
		PERFORM FROM coupon AS c WHERE c.id = n.coupon_id FOR NO KEY UPDATE;
		UPDATE expiry_notice AS e
		SET pass_from = greatest(n.told_to, moment),
			told_to = greatest(n.told_to, moment + before), after_to = NULL,
			after_user = NULL, after_slot = NULL, looked_at = moment
		WHERE e.coupon_id = n.coupon_id;
		RETURN QUERY SELECT 0::bigint, true;
		RETURN;
	END IF;

	SELECT count(*) AS num, array_agg(u.user_id) AS user_id, array_agg(u.slot) AS slot,
		(array_agg(u.valid_to))[count(*)] AS last_to
	INTO page
	FROM (
		SELECT u.user_id, u.slot, u.valid_to FROM user_coupon AS u
		WHERE u.coupon_id = n.coupon_id AND u.valid_to > n.pass_from
			AND u.valid_to <= n.told_to AND u.received_at <= u.valid_to - before
			AND (n.after_to IS NULL OR (u.valid_to, u.user_id, u.slot)
				> (n.after_to, n.after_user, n.after_slot))
		ORDER BY u.valid_to, u.user_id, u.slot
		LIMIT expiring_tell.most
	) AS u;
	PERFORM FROM coupon AS c WHERE c.id = n.coupon_id FOR NO KEY UPDATE;
	PERFORM event_expiring_add(array_agg(n.coupon_id), array_agg(r.user_id ORDER BY r.ord),
		array_agg(r.slot ORDER BY r.ord))
	FROM unnest(page.user_id, page.slot) WITH ORDINALITY AS r (user_id, slot, ord)
	WHERE NOT EXISTS (SELECT FROM expiry_late AS l WHERE l.coupon_id = n.coupon_id
		AND l.user_id = r.user_id AND l.slot = r.slot)
	HAVING count(*) > 0;
	IF page.num = expiring_tell.most THEN
		UPDATE expiry_notice AS e
		SET after_to = page.last_to, after_user = page.user_id[page.num],
			after_slot = page.slot[page.num], looked_at = moment
		WHERE e.coupon_id = n.coupon_id;
		RETURN QUERY SELECT page.num, true;
		RETURN;
	END IF;

	-- The pass is over. The next one is due with the next end, of a user coupon or of one that
	-- may still be issued, but not at once: it reads all rows again. While receives may come,
	-- it is due after a day at the latest.
	DELETE FROM expiry_late AS l WHERE l.coupon_id = n.coupon_id;
	SELECT min(u.valid_to) INTO next FROM user_coupon AS u
	WHERE u.coupon_id = n.coupon_id AND u.valid_to > n.told_to;
	IF NOT c.is_over THEN
		next := least(next, CASE WHEN c.valid_days IS NOT NULL
				THEN moment + c.valid_days * interval '24 hours'
				WHEN c.valid_to > n.told_to THEN c.valid_to END,
			moment + before + interval '1 day');
	END IF;
	UPDATE expiry_notice AS e
	SET pass_from = NULL, version = c.version, looked_at = moment,
		next_at = CASE WHEN next IS NULL THEN 'infinity' ELSE greatest(next - before, moment
			+ greatest(least(before / 100, interval '1 hour'), interval '1 s')) END
	WHERE e.coupon_id = n.coupon_id;
	RETURN QUERY SELECT page.num, false;
END
$$;
