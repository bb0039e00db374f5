-- version: 1
-- function: budget_changed()
--
-- Records in budget_history what an operator has made of a budget.
CREATE OR REPLACE FUNCTION budget_changed() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND NEW.amount = OLD.amount THEN
		RETURN NULL;
	END IF;
	INSERT INTO budget_history (name, made_by, amount, held, spent)
	VALUES (NEW.name, coalesce(nullif(current_setting('couponmq.by', true), ''), session_user),
		NEW.amount, NEW.held, NEW.spent);
	RETURN NULL;
END
$$;
