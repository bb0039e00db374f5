-- API keys; see docs/guides/security.md.

-- key_create: Creates a key. Returns the number of this change; NULL: there are too many.
-- $1 id, $2 name, $3 roles, $4 coupons (NULL: every one), $5 budgets (NULL: every one, with
-- coupons none), $6 when it expires, in ms (NULL: never), $7 requests per second (NULL: no limit),
-- $8 SHA-256 of its text, in hexadecimal
SELECT api_key_create($1::text, $2::text, $3::text[], $4::bigint[], $5::text[],
	timestamptz 'epoch' + $6::bigint * interval '1 ms', $7::int, decode($8::text, 'hex'))
	AS version

-- key_list: Keys, the newest first.
-- $1 only this one (NULL: all), $2 after this id (NULL: the first), $3 limit (NULL: none)
SELECT k.id AS key, k.name, k.roles, k.coupons::text[] AS coupons, k.budgets, k.rate,
	CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked'
		WHEN k.expires_at <= now() THEN 'expired' ELSE 'active' END AS state,
	to_char(k.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS expires_at,
	to_char(CASE WHEN k.previous_until > now() AND k.revoked_at IS NULL THEN k.previous_until
		END AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS previous_until,
	to_char(k.revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	k.version, k.created_by, k.by,
	to_char(k.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM api_key AS k
WHERE ($1::text IS NULL OR k.id = $1::text)
	AND ($2::text IS NULL OR EXISTS (SELECT FROM api_key AS a WHERE a.id = $2::text
		AND (k.created_at < a.created_at
			OR k.created_at = a.created_at AND k.id > a.id)))
ORDER BY k.created_at DESC, k.id
LIMIT $3::bigint

-- key_news: The number of the last change of any key, as `counted` in each row, and keys whose last
-- change has a higher number than what is known. One row without a record: there are none.
-- $1 what is known, $2 how many at most
SELECT v.num AS counted, r.version, r.record
FROM api_key_version AS v
	LEFT JOIN LATERAL api_key_records($1::bigint, $2::int) AS r ON true
ORDER BY r.version

-- key_records: Keys whose last change has a higher number, as Redis and gateways have them; see
-- sql/function/api_key_records.sql.
-- $1 a number, $2 how many at most
SELECT version, record FROM api_key_records($1::bigint, $2::int)

-- key_restore: Takes keys back from Redis; see sql/function/api_key_restore.sql.
-- $1 records in JSON, $2 the number that Redis has
SELECT ord, what FROM api_key_restore($1::text[], $2::bigint)

-- key_revoke: Revokes a key. Returns whether there is such a key.
-- $1 id
SELECT api_key_revoke($1::text) AS is_there

-- key_rotate: Gives a key another secret. Returns the number of this change; NULL: there is no such
-- key, or it is revoked or has expired.
-- $1 id, $2 SHA-256 of its new text, in hexadecimal, $3 for how many seconds the old one stays
-- valid
SELECT api_key_rotate($1::text, decode($2::text, 'hex'), $3::bigint) AS version

-- key_version: The number of the last change of any key.
SELECT num AS version FROM api_key_version
