-- version: 1
-- function: campaign_transition_check()
--
-- Refuses a change of a campaign's status that is not in campaign_transition, whoever makes it. The
-- trigger (in sql/schema/coupon.sql) fires only for statements that set the status. The session of
-- couponctl recover puts back what Redis has, so it is free.
CREATE OR REPLACE FUNCTION campaign_transition_check() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	IF current_setting('couponmq.recovering', true) = 'on' THEN
		RETURN NEW;
	END IF;
	IF NOT EXISTS (SELECT FROM campaign_transition AS t
			WHERE t.from_status = OLD.status AND t.to_status = NEW.status) THEN
		RAISE EXCEPTION 'coupon % is %: it cannot become %', OLD.id, OLD.status, NEW.status
			USING ERRCODE = 'check_violation', TABLE = 'coupon', COLUMN = 'status';
	END IF;
	RETURN NEW;
END
$$;
