-- version: 1
-- function: webhook_lease(int,int,bigint)
--
-- Takes up to `most` deliveries that are due, for a worker that begins to send each at once. A
-- delivery is the worker's until its lease ends; then it is due again, because the worker may have
-- died. Of a webhook at most `webhook_most` are being sent at once, by all workers together, and
-- one while it fails (as webhook_finish() counts).
--
-- Order: of one webhook and one coupon one delivery is sent at a time, of those that are due the
-- first. So they arrive in order, but for one whose attempt has failed: it is sent later, and
-- others overtake it. Fairness: the webhook whose last turn is longest ago comes first, and within
-- it the coupon after the last one.
--
-- A webhook whose last turn is still to come was noted by a clock that has been set back since: its
-- pauses and leases, which would last as much longer, are over.
--
-- The lock on the webhook makes these two rules hold for several workers: whoever does not get it
-- skips the webhook. Every statement in the loop sees what was committed before that lock. The
-- tables grow and shrink within minutes: a plan for the small ones must not stay for the large.
CREATE OR REPLACE FUNCTION webhook_lease(most int, webhook_most int, lease_ms bigint)
RETURNS TABLE (delivery bigint, lease int, webhook bigint, url text, secrets text, message text,
	attempts int, body text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	set_back CONSTANT interval := '1 second'; -- less than this is no step of the clock
	hook    record;
	room    int;
	coupon  bigint;
	due     bigint;
	before  int;
	taken   bigint;
	secrets text;
BEGIN
	FOR hook IN
		SELECT w.id, w.url, w.turn_coupon, w.failures_num, w.turn_at FROM webhook AS w
		WHERE w.state = 'enabled' AND (w.turn_at > clock_timestamp() + set_back
			OR (w.pause_until <= now()
				AND EXISTS (SELECT FROM webhook_delivery AS d
					WHERE d.webhook_id = w.id AND d.state = 'waiting'
						AND d.next_at <= now())))
		ORDER BY w.turn_at, w.id
		FOR NO KEY UPDATE OF w SKIP LOCKED
	LOOP
		EXIT WHEN most <= 0;
		IF hook.turn_at > clock_timestamp() + set_back THEN
			UPDATE webhook AS w SET turn_at = now(), pause_until = '-infinity',
				failing_since = least(w.failing_since, now())
			WHERE w.id = hook.id;
			UPDATE webhook_delivery AS d SET is_leased = false, next_at = '-infinity'
			WHERE d.webhook_id = hook.id AND d.state = 'waiting' AND d.next_at > now();
		END IF;
		SELECT least(most, CASE WHEN hook.failures_num < 3 THEN webhook_most ELSE 1 END
			- count(*)) INTO room
		FROM webhook_delivery AS d
		WHERE d.webhook_id = hook.id AND d.is_leased AND d.next_at > now();
		SELECT string_agg(s.secret, ' ' ORDER BY s.id DESC) INTO secrets
		FROM webhook_secret AS s
		WHERE s.webhook_id = hook.id AND (s.expires_at IS NULL OR s.expires_at > now());
		before := most;
		FOREACH coupon IN ARRAY ARRAY[hook.turn_coupon, 0] LOOP
			LOOP
				EXIT WHEN room <= 0;
				SELECT min(d.coupon_id) INTO coupon FROM webhook_delivery AS d
				WHERE d.webhook_id = hook.id AND d.state = 'waiting'
					AND d.coupon_id > coupon;
				EXIT WHEN coupon IS NULL;
				CONTINUE WHEN EXISTS (SELECT FROM webhook_delivery AS d
					WHERE d.webhook_id = hook.id AND d.coupon_id = coupon
						AND d.is_leased AND d.next_at > now());
				SELECT d.id INTO due FROM webhook_delivery AS d
				WHERE d.webhook_id = hook.id AND d.coupon_id = coupon
					AND d.state = 'waiting' AND d.next_at <= now()
				ORDER BY d.id LIMIT 1;
				CONTINUE WHEN NOT FOUND;
				RETURN QUERY
				UPDATE webhook_delivery AS d
				SET is_leased = true, lease = d.lease + 1,
					next_at = now() + lease_ms * interval '1 ms'
				WHERE d.id = due
				RETURNING d.id, d.lease, hook.id, hook.url, secrets,
					'msg_' || replace(d.message::text, '-', ''), d.attempts,
					d.body;
				taken := coupon;
				room := room - 1;
				most := most - 1;
			END LOOP;
		END LOOP;
		IF most < before THEN
			UPDATE webhook AS w SET turn_at = clock_timestamp(), turn_coupon = taken
			WHERE w.id = hook.id;
		END IF;
	END LOOP;
END
$$;
