-- version: 1
-- function: coupon_changing()
--
-- Before a change of a coupon, whoever makes it: notes for event_add() which transaction changed
-- the validity, and refuses a change of the status that is not in campaign_transition. The session
-- of couponctl recover puts back what Redis has, so it is free. What is not paused has no reason
-- for that.
CREATE OR REPLACE FUNCTION coupon_changing() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	IF (NEW.valid_days, NEW.valid_from, NEW.valid_to)
		IS DISTINCT FROM (OLD.valid_days, OLD.valid_from, OLD.valid_to) THEN
		NEW.valid_xid := pg_current_xact_id();
	END IF;
	IF NEW.status IS DISTINCT FROM OLD.status
		AND current_setting('couponmq.recovering', true) IS DISTINCT FROM 'on'
		AND NOT EXISTS (SELECT FROM campaign_transition AS t
			WHERE t.from_status = OLD.status AND t.to_status = NEW.status) THEN
		RAISE EXCEPTION 'coupon % is %: it cannot become %', OLD.id, OLD.status, NEW.status
			USING ERRCODE = 'check_violation', TABLE = 'coupon', COLUMN = 'status';
	END IF;
	IF NEW.status <> 'paused' THEN
		NEW.pause_reason := NULL;
	END IF;
	RETURN NEW;
END
$$;
