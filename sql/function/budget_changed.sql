-- version: 1
-- function: budget_changed()
--
-- Records in budget_history what an operator has made of a budget. One that a recovery has made
-- (couponmq.recovering, which recover_session sets) has no history until an operator sets its
-- amount.
CREATE OR REPLACE FUNCTION budget_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND NEW.amount = OLD.amount THEN
		RETURN NULL;
	END IF;
	IF current_setting('couponmq.recovering', true) = 'on' AND NOT EXISTS (
		SELECT FROM budget_history AS h WHERE h.name = NEW.name) THEN
		RETURN NULL;
	END IF;
	INSERT INTO budget_history (name, made_by, amount, held, spent)
	VALUES (NEW.name, coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
		NEW.amount, NEW.held, NEW.spent);
	RETURN NULL;
END
$$;
