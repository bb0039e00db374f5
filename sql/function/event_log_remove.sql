-- version: 1
-- function: event_log_remove(bigint[],bigint[],text[],text[])
--
-- Removes rows of event_log that RabbitMQ has confirmed, and queues their events for each webhook
-- that wants them, in the same transaction: element i of the last three arrays is a coupon, a type,
-- and a JSON array of CloudEvents, in the order in which they were published. Without webhooks
-- these are empty. A delivery is a part of such an array, of at most the webhook's batch_max
-- events.
--
-- The queue of a webhook has at most queue_max deliveries, also of those that have failed for good.
-- When it is full the oldest of these give way; then the events that do not fit are dropped, and
-- counted. A webhook never makes the caller wait: its queue is counted once, however many elements
-- there are, and what does not fit is not looked at.
CREATE OR REPLACE FUNCTION event_log_remove(
	ids    bigint[],
	coupon bigint[],
	type   text[],
	events text[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	hook       record;
	packets    jsonb[] := events::jsonb[];
	nums       int[] := ARRAY(SELECT jsonb_array_length(p.events)
		FROM unnest(packets) WITH ORDINALITY AS p (events, n) ORDER BY p.n);
	wanted     int; -- deliveries
	wanted_num bigint; -- the events in them
	added_num  bigint;
	room       int;
	given_up   int;
BEGIN
	-- The lock keeps couponctl webhook remove away until the end, and nothing else.
	FOR hook IN
		SELECT w.id, w.coupon_id, w.types, w.batch_max, w.queue_max FROM webhook AS w
		WHERE w.state = 'enabled' AND cardinality(nums) > 0
		ORDER BY w.id FOR KEY SHARE OF w
	LOOP
		SELECT sum((p.num + hook.batch_max - 1) / hook.batch_max), sum(p.num)
		INTO wanted, wanted_num
		FROM unnest(event_log_remove.coupon, event_log_remove.type, nums)
			AS p (coupon, type, num)
		WHERE (hook.coupon_id IS NULL OR hook.coupon_id = p.coupon)
			AND (hook.types = '{}' OR p.type = ANY (hook.types));
		CONTINUE WHEN coalesce(wanted, 0) = 0;
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
		WITH packet AS (
			SELECT p.coupon, p.type, p.events, p.n,
				sum((p.num + hook.batch_max - 1) / hook.batch_max)
					OVER (ORDER BY p.n ROWS BETWEEN UNBOUNDED PRECEDING
						AND 1 PRECEDING) AS before
			FROM unnest(event_log_remove.coupon, event_log_remove.type, packets, nums)
				WITH ORDINALITY AS p (coupon, type, events, num, n)
			WHERE (hook.coupon_id IS NULL OR hook.coupon_id = p.coupon)
				AND (hook.types = '{}' OR p.type = ANY (hook.types))
		), added AS (
			INSERT INTO webhook_delivery (webhook_id, coupon_id, type, events_num, body)
			SELECT hook.id, p.coupon, p.type, count(*),
				jsonb_agg(e.event ORDER BY e.n)::text
			FROM (SELECT * FROM packet AS f
				WHERE coalesce(f.before, 0) < room OFFSET 0) AS p
			CROSS JOIN jsonb_array_elements(p.events) WITH ORDINALITY AS e (event, n)
			WHERE coalesce(p.before, 0) + (e.n - 1) / hook.batch_max < room
			GROUP BY p.n, p.coupon, p.type, (e.n - 1) / hook.batch_max
			ORDER BY p.n, (e.n - 1) / hook.batch_max
			RETURNING events_num
		)
		SELECT coalesce(sum(a.events_num), 0) INTO added_num FROM added AS a;
		IF added_num < wanted_num THEN
			UPDATE webhook AS w SET dropped_at = now(),
				dropped_num = w.dropped_num + wanted_num - added_num
			WHERE w.id = hook.id;
		END IF;
		PERFORM pg_notify('couponmq_webhook', '');
	END LOOP;
	DELETE FROM event_log AS l WHERE l.id = ANY (event_log_remove.ids);
END
$$;
