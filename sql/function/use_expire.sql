-- version: 1
-- function: use_expire(tid[],timestamptz)
--
-- Frees receives whose hold has ended, and gives back what they have reserved. The caller holds
-- the locks of these rows of receive_use.
CREATE OR REPLACE FUNCTION use_expire(ended tid[], moment timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	done use_operation[];
BEGIN
	PERFORM FROM budget AS b
	WHERE b.name = ANY (ARRAY(SELECT s.budget FROM receive_use AS s
		WHERE s.ctid = ANY (ended)))
	ORDER BY b.name FOR NO KEY UPDATE;
	WITH old AS (
		SELECT s.* FROM receive_use AS s WHERE s.ctid = ANY (ended)
	), freed AS (
		UPDATE receive_use AS s
		SET state = 'free', order_id = NULL, until = NULL, amount_off = NULL, budget = NULL
		WHERE s.ctid = ANY (ended)
	), given AS (
		UPDATE budget AS b SET held = b.held - n.held, updated_at = moment
		FROM (SELECT budget, sum(amount_off) AS held FROM old GROUP BY budget) AS n
		WHERE b.name = n.budget
	), told AS (
		INSERT INTO use_operation AS d (coupon_id, batch, idx, action, key, at, user_id,
			order_id, result, from_state, to_state, until, amount_off, budget)
		-- Not by its end: with a clock that was set back, two holds end with the validity.
		SELECT coupon_id, batch, idx, 'expire', to_char(moment AT TIME ZONE 'UTC',
				'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
			moment, user_id, order_id, 'released', 'held', 'free', until, amount_off,
			budget
		FROM old
		RETURNING d AS operation
	)
	SELECT array_agg(operation) INTO done FROM told;
	PERFORM event_used_add(done);
END
$$;
