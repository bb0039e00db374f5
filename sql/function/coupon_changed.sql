-- version: 1
-- function: coupon_changed()
--
-- After a change of a campaign's terms or status, whoever makes it: notifies keepers and gateways,
-- which act at once, and records the change in campaign_history. Who: the setting couponmq.by of
-- the session, or the name of the program.
CREATE OR REPLACE FUNCTION coupon_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
DECLARE
	-- What is counted, and not decided by a person.
	counts CONSTANT text[] := '{issued_num,version,generation,seq_seen,settled_num,settled_at,'
		'created_at,updated_at,late_num,rebuild_asked,rebuild_done,rebuild_told,expires_at,'
		'outcome_at,generation_folded}';
	terms  jsonb := to_jsonb(NEW) - counts;
	action text;
BEGIN
	IF NEW.status <> 'draft' AND (TG_OP = 'INSERT'
			OR (NEW.status, NEW.version) IS DISTINCT FROM (OLD.status, OLD.version))
	THEN
		PERFORM pg_notify('couponmq_terms', NEW.id::text);
	END IF;
	IF TG_OP = 'UPDATE' THEN
		IF terms = to_jsonb(OLD) - counts THEN
			RETURN NULL;
		END IF;
		SELECT t.action INTO action FROM campaign_transition AS t
		WHERE t.from_status = OLD.status AND t.to_status = NEW.status;
	ELSE
		action := 'create';
	END IF;
	IF current_setting('couponmq.recovering', true) = 'on' THEN
		action := 'recover';
	END IF;
	INSERT INTO campaign_history (coupon_id, made_by, action, from_status, version, terms)
	VALUES (NEW.id,
		coalesce(nullif(current_setting('couponmq.by', true), ''),
			nullif(current_setting('application_name'), ''), session_user),
		coalesce(action, 'edit'),
		CASE TG_OP WHEN 'UPDATE' THEN OLD.status END, NEW.version, terms);
	RETURN NULL;
END
$$;
