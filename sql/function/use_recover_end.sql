-- version: 1
-- function: use_recover_end()
--
-- For couponctl recover, when all operations on receives are back: counts what of each budget is
-- held and spent. A budget that is missing has just that, and one with less gets as much; an
-- operator sets the amount again. Returns the names of these, and of those that only a recovery has
-- made: they have no history.
CREATE OR REPLACE FUNCTION use_recover_end() RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = public, pg_temp
AS $$
	-- What holds that have ended had reserved may be taken by others since.
	UPDATE receive_use SET budget = NULL WHERE until <= now() AND budget IS NOT NULL;

	INSERT INTO budget (name, currency, amount)
	SELECT s.budget, max(c.currency), 0
	FROM receive_use AS s JOIN coupon AS c ON c.id = s.coupon_id
	WHERE s.budget IS NOT NULL AND c.currency IS NOT NULL
	GROUP BY s.budget
	ON CONFLICT DO NOTHING;

	WITH counted AS (
		SELECT b.name, b.amount AS was, coalesce(sum(s.amount_off) FILTER (
				WHERE s.state = 'held'), 0) AS held,
			coalesce(sum(s.amount_off) FILTER (WHERE s.state = 'used'), 0) AS spent
		FROM budget AS b LEFT JOIN receive_use AS s ON s.budget = b.name
		GROUP BY b.name
	), changed AS (
		UPDATE budget AS b
		SET held = n.held, spent = n.spent, amount = greatest(b.amount, n.held + n.spent)
		FROM counted AS n
		WHERE b.name = n.name AND (b.held, b.spent) IS DISTINCT FROM (n.held, n.spent)
	)
	SELECT n.name FROM counted AS n
	WHERE n.was < n.held + n.spent
		OR NOT EXISTS (SELECT FROM budget_history AS h WHERE h.name = n.name)
	ORDER BY n.name
$$;
