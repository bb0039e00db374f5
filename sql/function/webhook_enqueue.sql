-- version: 1
-- function: webhook_enqueue(bigint,text,jsonb)
--
-- Queues events of one coupon and one type for each webhook that wants them, in the transaction of
-- the caller. `events` is an array of CloudEvents, in their order. A delivery is a part of it, of
-- at most the webhook's batch_max events.
--
-- The queue of a webhook has at most queue_max deliveries, also of those that have failed for good.
-- When it is full the oldest of these give way; then the events that do not fit are dropped, and
-- counted. A webhook never makes the caller wait.
CREATE OR REPLACE FUNCTION webhook_enqueue(coupon bigint, type text, events jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	hook       record;
	events_num int := jsonb_array_length(events);
	wanted     int;
	room       int;
	given_up   int;
BEGIN
	IF events_num = 0 THEN
		RETURN;
	END IF;
	-- The lock keeps couponctl webhook remove away until the end, and nothing else.
	FOR hook IN
		SELECT w.id, w.batch_max, w.queue_max FROM webhook AS w
		WHERE w.state = 'enabled'
			AND (w.coupon_id IS NULL OR w.coupon_id = webhook_enqueue.coupon)
			AND (w.types = '{}' OR webhook_enqueue.type = ANY (w.types))
		ORDER BY w.id FOR KEY SHARE OF w
	LOOP
		wanted := (events_num + hook.batch_max - 1) / hook.batch_max;
		SELECT hook.queue_max - count(*) INTO room
		FROM (SELECT FROM webhook_delivery AS d
			WHERE d.webhook_id = hook.id LIMIT hook.queue_max) AS queued;
		IF room < wanted THEN
			DELETE FROM webhook_delivery AS d
			WHERE d.id = ANY (ARRAY(SELECT f.id FROM webhook_delivery AS f
				WHERE f.webhook_id = hook.id AND f.state = 'failed'
				ORDER BY f.id LIMIT wanted - room FOR UPDATE SKIP LOCKED));
			GET DIAGNOSTICS given_up = ROW_COUNT;
			room := least(room + given_up, wanted);
		END IF;
		IF room < wanted THEN
			UPDATE webhook AS w SET dropped_at = now(),
				dropped_num = w.dropped_num + events_num - room * hook.batch_max
			WHERE w.id = hook.id;
		END IF;
		INSERT INTO webhook_delivery (webhook_id, coupon_id, type, events_num, body)
		SELECT hook.id, webhook_enqueue.coupon, webhook_enqueue.type, count(*),
			jsonb_agg(e.event ORDER BY e.n)::text
		FROM jsonb_array_elements(events) WITH ORDINALITY AS e (event, n)
		WHERE e.n <= room::bigint * hook.batch_max
		GROUP BY (e.n - 1) / hook.batch_max
		ORDER BY (e.n - 1) / hook.batch_max;
		PERFORM pg_notify('couponmq_webhook', '');
	END LOOP;
END
$$;

REVOKE ALL ON FUNCTION webhook_enqueue(bigint, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION webhook_enqueue(bigint, text, jsonb) TO couponmq_app;
