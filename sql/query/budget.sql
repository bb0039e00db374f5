-- Budgets, and what the keeper does for them; amounts in the smallest unit of the currency.

-- budget_campaigns: The campaigns of a budget that are published, or that a budget has paused, with
-- the version of their terms, and whether the keeper has to pause or resume them: see budget_due.
-- $1 budget
SELECT c.id, c.version, (c.status = 'published')
	= (b.amount - b.held - b.spent < coalesce(c.amount_off, 1)) AS is_due
FROM coupon AS c JOIN budget AS b ON b.name = c.budget
WHERE b.name = $1::text AND (c.status = 'published' OR c.pause_reason IS NOT NULL)
ORDER BY c.id

-- budget_create: Creates a budget. No row: there is one of this name.
-- $1 name, $2 currency, $3 amount
INSERT INTO budget (name, currency, amount) VALUES ($1::text, $2::text, $3::bigint)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- budget_due: Campaigns that their budget pauses, because it has no room for their discount (of a
-- percentage: for any), and those that only a budget has paused, when there is room again or they
-- have none any more.
-- $1 limit
SELECT c.id, c.status
FROM coupon AS c LEFT JOIN budget AS b ON b.name = c.budget
WHERE ((c.budget IS NOT NULL AND c.status = 'published') OR c.pause_reason IS NOT NULL)
	AND (c.status = 'published')
		= coalesce(b.amount - b.held - b.spent < coalesce(c.amount_off, 1), false)
ORDER BY c.id
LIMIT $1::int

-- budget_history: What operators have changed of a budget, in order.
-- $1 name
SELECT to_char(made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at, made_by AS by,
	amount, held, spent
FROM budget_history
WHERE name = $1::text
ORDER BY id

-- budget_list: Budgets by name, each with its campaigns that are not closed.
-- $1 only this one (NULL: all), $2 after this name (NULL: the first), $3 limit (NULL: none)
SELECT b.name, b.currency, b.amount, b.held, b.spent, b.amount - b.held - b.spent AS left,
	(SELECT coalesce(array_agg(c.id::text ORDER BY c.id), '{}') FROM coupon AS c
		WHERE c.budget = b.name AND c.status <> 'closed') AS campaigns,
	to_char(b.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	to_char(b.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at
FROM budget AS b
WHERE ($1::text IS NULL OR b.name = $1::text) AND b.name > coalesce($2::text, '')
ORDER BY b.name
LIMIT $3::bigint

-- budget_pause: Pauses or resumes a campaign that is due; see budget_due. Returns whether this
-- keeper is still elected, and whether the campaign was still due.
-- $1 coupon, $2 the keeper's fence
WITH elected AS (
	SELECT fence FROM keeper WHERE fence = $2::bigint FOR SHARE
), moved AS (
	UPDATE coupon AS c
	SET status = CASE c.status WHEN 'published' THEN 'paused' ELSE 'published' END,
		pause_reason = CASE c.status WHEN 'published' THEN 'budget' END,
		version = c.version + 1, updated_at = now()
	FROM elected
	WHERE c.id = $1::bigint AND (c.status = 'published' OR c.pause_reason IS NOT NULL)
		AND (c.status = 'published') = coalesce((
			SELECT b.amount - b.held - b.spent < coalesce(c.amount_off, 1)
			FROM budget AS b WHERE b.name = c.budget), false)
	RETURNING c.id
)
SELECT EXISTS (SELECT FROM elected) AS is_elected, EXISTS (SELECT FROM moved) AS is_moved

-- budget_set: Gives a budget another amount, unless that is less than what is held and spent.
-- Returns what these are together, and whether it has the amount now. No row: no such budget. A row
-- that uses have changed meanwhile is compared again; to lock it first would not do: the CHECK sees
-- the new amount beside the counts before the lock.
-- $1 name, $2 amount
WITH changed AS (
	UPDATE budget
	SET amount = $2::bigint, updated_at = now()
	WHERE name = $1::text AND held + spent <= $2::bigint AND amount <> $2::bigint
	RETURNING name
)
SELECT held + spent AS taken, amount = $2::bigint OR EXISTS (SELECT FROM changed) AS is_set
FROM budget
WHERE name = $1::text
