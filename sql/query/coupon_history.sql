-- What happened to a campaign, in order: every recorded change, with the terms that it changed, and
-- the moments at which it opened by the clock.
-- $1 coupon
WITH recorded AS (
	SELECT h.*, (h.terms->>'begin_at')::timestamptz AS begin_at,
		(h.terms->>'end_at')::timestamptz AS end_at,
		lead(h.made_at) OVER (ORDER BY h.id) AS next_at,
		lag(h.terms) OVER (ORDER BY h.id) AS terms_before
	FROM campaign_history AS h
	WHERE h.coupon_id = $1::bigint
), happened AS (
	SELECT id, made_at, made_by, action,
		CASE WHEN from_status IS NOT NULL THEN
			campaign_state(from_status, (terms_before->>'begin_at')::timestamptz,
				(terms_before->>'end_at')::timestamptz, made_at) END AS from_state,
		campaign_state(terms->>'status', begin_at, end_at, made_at) AS to_state,
		version,
		(SELECT jsonb_object_agg(t.key, jsonb_build_array(terms_before->t.key, t.value))
			FROM jsonb_each(terms) AS t
			WHERE t.key NOT IN ('status', 'valid_xid') AND terms_before IS NOT NULL
				AND t.value IS DISTINCT FROM terms_before->t.key
				-- A term that did not exist yet had its default.
				AND (terms_before ? t.key OR t.value NOT IN ('null', 'false')))
			AS changes
	FROM recorded
	UNION ALL
	SELECT id, begin_at, 'the clock', 'open', 'scheduled', 'issuing', version, NULL
	FROM recorded
	WHERE terms->>'status' = 'published' AND begin_at > made_at
		AND begin_at <= least(next_at, now())
)
SELECT to_char(made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at,
	made_by AS by, action, from_state AS from, to_state AS to, version, changes
FROM happened
ORDER BY id, made_at
