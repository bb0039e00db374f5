-- version: 2
-- function: event_log_remove(bigint[],bigint[],text[],text[])
--
-- Removes rows of event_log that RabbitMQ has confirmed, and passes their events on to the webhooks
-- in the same transaction: element i of the last three arrays is a coupon, a type, and a JSON array
-- of events, in the order in which they were published. Without webhooks these are empty.
CREATE OR REPLACE FUNCTION event_log_remove(
	ids    bigint[],
	coupon bigint[],
	type   text[],
	events text[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM webhook_enqueue(event_log_remove.coupon, event_log_remove.type,
		event_log_remove.events);
	DELETE FROM event_log AS l WHERE l.id = ANY (event_log_remove.ids);
END
$$;
