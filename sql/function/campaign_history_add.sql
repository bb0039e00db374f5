-- version: 1
-- function: campaign_history_add()
--
-- Records a change of a campaign's terms or status in campaign_history, whoever makes it. The
-- trigger (in sql/schema/coupon.sql) fires only for statements that set one of them; settle() sets
-- none. Who: the setting couponmq.by of the session, or the name of the program.
CREATE OR REPLACE FUNCTION campaign_history_add() RETURNS trigger
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
