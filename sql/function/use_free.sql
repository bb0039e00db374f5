-- version: 1
-- function: use_free(text[],integer)
--
-- Frees receives whose hold has ended, at most so many, and gives back what they have reserved of
-- these budgets (NULL: of any, or none). Returns how many. It waits for no receive: one that is
-- locked is being used, or freed. Who has locked budgets names just these.
CREATE OR REPLACE FUNCTION use_free(budgets text[], most int)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	ended  tid[] := ARRAY(
		SELECT s.ctid FROM receive_use AS s
		WHERE s.until <= moment
			AND (use_free.budgets IS NULL OR s.budget = ANY (use_free.budgets))
		ORDER BY s.until LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
	IF cardinality(ended) > 0 THEN
		PERFORM use_expire(ended, moment);
	END IF;
	RETURN cardinality(ended);
END
$$;
