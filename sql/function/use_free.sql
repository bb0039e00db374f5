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
	ended  record;
BEGIN
	SELECT array_agg(s.ctid) AS ctid, coalesce(array_agg(DISTINCT s.budget), '{}') AS budget
	INTO ended
	FROM (
		SELECT s.ctid, s.budget FROM receive_use AS s
		WHERE s.until <= moment
			AND (use_free.budgets IS NULL OR s.budget = ANY (use_free.budgets))
		ORDER BY s.until LIMIT most FOR NO KEY UPDATE SKIP LOCKED
	) AS s;
	IF ended.ctid IS NULL THEN
		RETURN 0;
	END IF;
	PERFORM FROM budget AS b WHERE b.name = ANY (ended.budget) ORDER BY b.name
	FOR NO KEY UPDATE;
	WITH old AS (
		SELECT s.* FROM receive_use AS s WHERE s.ctid = ANY (ended.ctid)
	), freed AS (
		UPDATE receive_use AS s
		SET state = 'free', order_id = NULL, until = NULL, amount_off = NULL, budget = NULL
		WHERE s.ctid = ANY (ended.ctid)
	), told AS (
		INSERT INTO use_operation (coupon_id, batch, idx, action, key, at, user_id,
			order_id, result, from_state, to_state, until, amount_off, budget)
		SELECT coupon_id, batch, idx, 'expire', to_char(until AT TIME ZONE 'UTC',
				'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
			moment, user_id, order_id, 'unheld', 'held', 'free', until, amount_off,
			budget
		FROM old
	)
	UPDATE budget AS b SET held = b.held - n.held, updated_at = moment
	FROM (SELECT budget, sum(amount_off) AS held FROM old GROUP BY budget) AS n
	WHERE b.name = n.budget;
	RETURN cardinality(ended.ctid);
END
$$;
