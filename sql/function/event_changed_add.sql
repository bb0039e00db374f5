-- version: 1
-- function: event_changed_add()
--
-- Writes the event campaign.changed of a row of campaign_history, if the campaign has events on or
-- had until this change. The trigger is in sql/schema/campaign.sql. Who changes a campaign holds
-- the lock of its row, or has just created it.
CREATE OR REPLACE FUNCTION event_changed_add() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
DECLARE
	before jsonb; -- the terms
BEGIN
	SELECT h.terms INTO before FROM campaign_history AS h
	WHERE h.coupon_id = NEW.coupon_id AND h.id < NEW.id
	ORDER BY h.id DESC LIMIT 1;
	IF (NEW.terms->'events_on' = 'true' OR before->'events_on' = 'true') IS NOT TRUE THEN
		RETURN NULL;
	END IF;
	INSERT INTO event_log (type, num, coupon, history_id, detail)
	VALUES ('campaign.changed', 1, ARRAY[NEW.coupon_id], ARRAY[NEW.id],
		ARRAY[jsonb_build_object('version', NEW.version, 'action', NEW.action, 'by',
			NEW.made_by, 'from', CASE WHEN NEW.from_status IS NOT NULL THEN
				campaign_state(NEW.from_status, (before->>'begin_at')::timestamptz,
					least((before->>'end_at')::timestamptz,
						(before->>'valid_to')::timestamptz),
					NEW.made_at) END,
			'to', campaign_state(NEW.terms->>'status',
				(NEW.terms->>'begin_at')::timestamptz,
				least((NEW.terms->>'end_at')::timestamptz,
					(NEW.terms->>'valid_to')::timestamptz), NEW.made_at),
			'changes', (SELECT coalesce(jsonb_object_agg(t.key,
					jsonb_build_array(before->t.key, t.value)), '{}')
				FROM jsonb_each(NEW.terms) AS t
				WHERE t.key NOT IN ('id', 'status', 'valid_xid') AND t.value
					IS DISTINCT FROM coalesce(before->t.key, 'null')))]);
	RETURN NULL;
END
$$;
