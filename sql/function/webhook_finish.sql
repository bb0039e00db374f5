-- version: 1
-- function: webhook_finish(bigint,int,text,int,text,bigint,bigint,bigint,bigint)
--
-- Records what became of an attempt that webhook_lease() began:
--
--   delivered  it has arrived: its row goes
--   retry      it failed, and is due again after retry_ms
--   failed     it failed for the last time; it stays, for couponctl webhook show --resend
--   gone       as retry, and the webhook is disabled: the endpoint answered 410
--   released   it was not tried to its end: it is due at once, and no attempt is counted
--
-- After three failures in a row nothing is sent to the webhook for pause_first_ms, twice as long
-- after each further one, up to 60 times as long; and for pause_ms at least, for which the endpoint
-- has asked. It is disabled when it has failed for disable_s.
--
-- Returns one row: whether the lease was still the worker's; if not, nothing was recorded, because
-- another worker sends the delivery again, or the webhook was removed. And why the webhook was
-- disabled; NULL: it was not. The webhook is locked first, as when it is removed.
--
-- A turn that is still to come stays noted: webhook_lease() sees by it that the clock was set back.
CREATE OR REPLACE FUNCTION webhook_finish(
	delivery       bigint,
	lease          int,
	result         text,
	status         int,
	why            text,
	retry_ms       bigint,
	pause_ms       bigint,
	pause_first_ms bigint,
	disable_s      bigint)
RETURNS TABLE (is_own boolean, disabled_why text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	hook     record;
	arrived  int;
	disabled text;
BEGIN
	SELECT w.id, w.state, w.failures_num + 1 AS failures_num,
		coalesce(w.failing_since, now()) AS failing_since INTO hook
	FROM webhook AS w
	WHERE w.id = (SELECT d.webhook_id FROM webhook_delivery AS d
		WHERE d.id = webhook_finish.delivery)
	FOR NO KEY UPDATE;
	IF result = 'delivered' THEN
		DELETE FROM webhook_delivery AS d
		WHERE d.id = webhook_finish.delivery AND d.lease = webhook_finish.lease
		RETURNING d.events_num INTO arrived;
	ELSIF result = 'released' THEN
		UPDATE webhook_delivery AS d SET is_leased = false, next_at = '-infinity'
		WHERE d.id = webhook_finish.delivery AND d.lease = webhook_finish.lease;
	ELSE
		UPDATE webhook_delivery AS d
		SET is_leased = false, attempts = d.attempts + 1, last_at = now(),
			state = CASE result WHEN 'failed' THEN 'failed' ELSE 'waiting' END,
			next_at = now() + retry_ms * interval '1 ms',
			last_status = status, last_why = why
		WHERE d.id = webhook_finish.delivery AND d.lease = webhook_finish.lease;
	END IF;
	IF NOT FOUND THEN
		RETURN QUERY VALUES (false, NULL);
		RETURN;
	END IF;
	IF result = 'delivered' THEN
		UPDATE webhook AS w
		SET failures_num = 0, failing_since = NULL, pause_until = '-infinity',
			turn_at = greatest(w.turn_at, clock_timestamp()),
			delivered_num = w.delivered_num + arrived, delivered_at = now()
		WHERE w.id = hook.id;
	ELSIF result <> 'released' THEN
		UPDATE webhook AS w
		SET failures_num = hook.failures_num, failing_since = hook.failing_since,
			turn_at = greatest(w.turn_at, clock_timestamp()),
			pause_until = now() + interval '1 ms' * greatest(pause_ms,
				CASE WHEN hook.failures_num < 3 THEN 0 ELSE pause_first_ms
					* least(60, 2 ^ least(hook.failures_num - 3, 6)) END)
		WHERE w.id = hook.id;
	END IF;
	IF result = 'gone' THEN
		disabled := 'the endpoint answered 410 Gone';
	ELSIF result IN ('retry', 'failed')
			AND now() - hook.failing_since >= disable_s * interval '1 s' THEN
		disabled := 'every attempt has failed since ' || to_char(
			hook.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
	END IF;
	IF disabled IS NOT NULL AND hook.state = 'enabled' THEN
		UPDATE webhook AS w
		SET state = 'disabled', state_why = disabled, state_by = 'coupon-worker',
			state_at = now()
		WHERE w.id = hook.id;
	ELSE
		disabled := NULL;
	END IF;
	RETURN QUERY VALUES (true, disabled);
END
$$;
