-- version: 1
-- function: use_free(text[],integer)
--
-- Frees receives whose hold has ended, at most so many, and gives back what they have reserved of
-- these budgets (NULL: of any, or none). Returns how many. Who has locked budgets names just these.
-- It waits for no receive: one that is locked is being used. So that nobody who has locked a budget
-- takes one for that which is freed here, budgets are locked before.
CREATE OR REPLACE FUNCTION use_free(budgets text[], most int)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	locked text[] := use_free.budgets;
	ended  tid[];
BEGIN
	IF locked IS NULL THEN
		SELECT array_agg(b.name) INTO locked
		FROM (
			SELECT b.name FROM budget AS b
			WHERE b.name = ANY (ARRAY(SELECT s.budget FROM receive_use AS s
				WHERE s.until <= moment ORDER BY s.until LIMIT most))
			ORDER BY b.name FOR NO KEY UPDATE
		) AS b;
	END IF;
	ended := ARRAY(
		SELECT s.ctid FROM receive_use AS s
		WHERE s.until <= moment
			AND (s.budget = ANY (locked)
				OR (s.budget IS NULL AND use_free.budgets IS NULL))
		ORDER BY s.until LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
	IF cardinality(ended) > 0 THEN
		PERFORM use_expire(ended, moment);
	END IF;
	RETURN cardinality(ended);
END
$$;
