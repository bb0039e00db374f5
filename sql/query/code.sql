-- Exchange codes; see docs/guides/codes.md.

-- code_catalogue: The sets of codes with their spaces, those of the space that was made first
-- first. Of a word its text; NULL: it is not stored yet.
SELECT s.id, s.coupon_id, s.kind, s.first_position, s.code_num, s.for_user,
	floor(extract(epoch FROM s.valid_to) * 1000)::bigint AS end_ms, s.space_id, p.form,
	p.alphabet, p.key_version, k.fingerprint, w.text AS word
FROM code_set AS s
	LEFT JOIN code_space AS p ON p.id = s.space_id
	LEFT JOIN code_key AS k ON k.version = p.key_version
	LEFT JOIN code AS w ON s.kind = 'word' AND w.set_id = s.id AND w.serial = 0
ORDER BY s.space_id, s.first_position, s.id

-- code_changed: Counts the transaction as a change; see change_note(). The last statement before
-- COMMIT.
SELECT change_note(false) AS change

-- code_import: Stores codes that others made. Those that exist are left out; returns how many were
-- not. In the order of their texts, so that two that do this at once cannot deadlock.
-- $1 set, $2 coupon, $3 serials, $4 texts, $5 spellings ('': the text), $6 metadata ('': none),
-- $7 states, $8 users of used codes ('': not known), $9 when they were used (0: not known), $10 who
-- alone may claim them ('': as the set says), $11 until when (0: as the set says): arrays of one
-- length from $3 on; times in ms since the epoch
WITH added AS (
	INSERT INTO code (set_id, serial, coupon_id, text, spelling, metadata, state, user_id,
		used_at, for_user, valid_to, revoked_at, revoked_by, revocation_num)
	SELECT $1::bigint, g.serial, $2::bigint, g.text, nullif(g.spelling, ''),
		nullif(g.metadata, '')::jsonb, g.state, nullif(g.user_id, ''),
		to_timestamp(nullif(g.used_ms, 0) / 1000.0), nullif(g.for_user, ''),
		to_timestamp(nullif(g.end_ms, 0) / 1000.0),
		CASE WHEN g.state = 'revoked' THEN now() END,
		CASE WHEN g.state = 'revoked' THEN
			coalesce(nullif(current_setting('couponmq.by', true), ''),
				session_user) END,
		CASE WHEN g.state = 'revoked' THEN 0 END
	FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::bigint[], $10::text[], $11::bigint[])
		AS g (serial, text, spelling, metadata, state, user_id, used_ms, for_user, end_ms)
	ORDER BY g.text COLLATE "C", g.serial
	ON CONFLICT (text) WHERE text IS NOT NULL DO NOTHING
	RETURNING 1
)
SELECT count(*) AS added FROM added

-- code_keys: The keys that have made codes, by their fingerprints.
SELECT version, fingerprint FROM code_key ORDER BY version

-- code_present: How many of the rows of a set that are there are used, and revoked.
-- $1 set, $2 serials
SELECT count(*) FILTER (WHERE c.state = 'used') AS used,
	count(*) FILTER (WHERE c.state = 'revoked') AS revoked
FROM unnest($2::bigint[]) AS g (serial),
	LATERAL (SELECT * FROM code WHERE code.set_id = $1::bigint AND code.serial = g.serial
		OFFSET 0) AS c

-- code_claimable: Of these texts, those that are imported codes or words; `code` is as receives
-- name it. Whether a code is revoked Redis decides: who has claimed it before gets the same
-- receive again. But nobody has claimed what was used or revoked when it was imported
-- (`imported_as`, else NULL). `for_user`: who alone may claim it, or NULL; `end_ms`: until when, 0:
-- as the campaign. LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 texts
SELECT g.ord, c.set_id, c.serial, c.coupon_id, s.kind,
	CASE WHEN c.state = 'used' AND c.batch IS NULL OR c.revocation_num = 0 THEN c.state END
		AS imported_as,
	coalesce(c.for_user, s.for_user) AS for_user,
	coalesce(floor(extract(epoch FROM coalesce(c.valid_to, s.valid_to)) * 1000), 0)::bigint
		AS end_ms,
	c.set_id || CASE s.kind WHEN 'word' THEN '' ELSE '.' || c.serial END AS code
FROM unnest($1::text[]) WITH ORDINALITY AS g (text, ord),
	LATERAL (SELECT * FROM code WHERE code.text = g.text OFFSET 0) AS c,
	LATERAL (SELECT * FROM code_set WHERE code_set.id = c.set_id OFFSET 0) AS s
ORDER BY g.ord

-- code_revocation: The number of the last revocation of codes of a coupon.
-- $1 coupon
SELECT revocation_num FROM coupon WHERE id = $1::bigint

-- code_revocation_cut: Records which receives were accepted before revocations: those up to the
-- generation and number that Redis had when it had all of these revocations.
-- $1 coupon, $2 above this revocation, $3 up to this one, $4 generation, $5 seq
UPDATE code_revocation
SET generation = $4::int, seq = $5::bigint
WHERE coupon_id = $1::bigint AND num > $2::bigint AND num <= $3::bigint AND seq IS NULL
	AND generation >= $4::int

-- code_revoke: Revokes codes; those that are used stay as they are. Returns how many were not
-- revoked before.
-- $1 sets, $2 serials, $3 coupons: arrays of one length
SELECT code_revoke($1::bigint[], $2::bigint[], $3::bigint[]) AS revoked

-- code_row: One code of a set, whose row may be absent: then it is unused. Or the code that others
-- made, or the word, with this text. A word is open until it is revoked; `claimed` is how often it
-- was claimed. `for_user` and `valid_to`: who alone may claim it, and until when. No row: there is
-- no such set or text.
-- $1 set, $2 serial, $3 text (NULL: by set and serial)
SELECT s.id AS set_id, s.coupon_id, s.kind, s.pattern, p.alphabet,
	coalesce(c.spelling, c.text) AS spelling,
	CASE WHEN s.revoked_at IS NOT NULL AND coalesce(c.state, 'unused') = 'unused' THEN 'revoked'
		WHEN s.kind = 'word' AND c.state = 'unused' THEN 'open'
		ELSE coalesce(c.state, 'unused') END AS state,
	CASE WHEN s.kind = 'word' THEN (SELECT count(*) FROM user_coupon AS u
		WHERE u.coupon_id = s.coupon_id AND u.code = s.id::text) END AS claimed,
	c.user_id, c.batch::text, c.idx, c.metadata::text,
	coalesce(c.for_user, s.for_user) AS for_user,
	to_char(coalesce(c.valid_to, s.valid_to) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	to_char(c.used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS used_at,
	to_char(coalesce(c.revoked_at, s.revoked_at) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	coalesce(c.revoked_by, s.revoked_by) AS revoked_by
FROM (SELECT $1::bigint AS set_id, $2::bigint AS serial WHERE $3::text IS NULL
		UNION ALL SELECT set_id, serial FROM code WHERE text = $3::text) AS named
	JOIN code_set AS s ON s.id = named.set_id
	LEFT JOIN code AS c ON c.set_id = s.id AND c.serial = named.serial
	LEFT JOIN code_space AS p ON p.id = s.space_id

-- code_rows: The rows of the codes of a set, in order.
-- $1 set, $2 whether also those that are not used
SELECT c.serial, coalesce(c.spelling, c.text) AS spelling, c.state, c.user_id, c.batch::text, c.idx,
	c.metadata::text, c.for_user,
	to_char(c.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	to_char(c.used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS used_at
FROM code AS c
WHERE c.set_id = $1::bigint AND ($2::boolean OR c.state = 'used')
ORDER BY c.serial

-- code_set_add: Adds a set of codes that others made, or of a word. Returns the set. No row: there
-- is no such coupon. To be run under the lock "codes"; see code_set_generate about the id.
-- $1 coupon, $2 kind, $3 request (NULL: none), $4 file (NULL: none), $5 who alone may claim its
-- codes (NULL: anybody), $6 until when, in ms since the epoch (0: as the campaign)
INSERT INTO code_set (id, coupon_id, kind, request, source, for_user, valid_to, created_by)
SELECT greatest((SELECT coalesce(max(s.id), 0) + 1 FROM code_set AS s),
		extract(epoch FROM now())::bigint),
	c.id, $2::text, $3::text, $4::text, $5::text,
	to_timestamp(nullif($6::bigint, 0) / 1000.0),
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
FROM coupon AS c
WHERE c.id = $1::bigint
RETURNING id

-- code_set_complete: Records that the file of a set is complete.
-- $1 set
UPDATE code_set SET completed_at = now() WHERE id = $1::bigint AND completed_at IS NULL

-- code_set_edit: Gives a set another end. No row: there is no such set, or it is revoked.
-- $1 set, $2 the end in ms (0: as the campaign)
UPDATE code_set
SET valid_to = timestamptz 'epoch' + nullif($2::bigint, 0) * interval '1 ms',
	edit_num = edit_num + 1
WHERE id = $1::bigint AND revoked_at IS NULL
RETURNING id

-- code_set_generate: Gives a range of positions to a set of codes. Returns the set. No row: there
-- is no such coupon, or a part of the range is in use. To be run under the lock "codes". The id
-- keeps up with the clock, so that no id is given twice when PostgreSQL was put back to an earlier
-- moment.
-- $1 coupon, $2 space, $3 first position, $4 number of codes, $5 pattern, $6 request, $7 file,
-- $8 who alone may claim them (NULL: anybody), $9 until when, in ms since the epoch (0: as the
-- campaign)
INSERT INTO code_set (id, coupon_id, kind, space_id, first_position, code_num, pattern, request,
	source, for_user, valid_to, created_by)
SELECT greatest((SELECT coalesce(max(s.id), 0) + 1 FROM code_set AS s),
		extract(epoch FROM now())::bigint),
	c.id, 'generated', $2::int, $3::bigint, $4::bigint, $5::text, $6::text, $7::text,
	$8::text, to_timestamp(nullif($9::bigint, 0) / 1000.0),
	coalesce(nullif(current_setting('couponmq.by', true), ''), session_user)
FROM coupon AS c
WHERE c.id = $1::bigint AND NOT EXISTS (SELECT FROM code_set AS s
	WHERE s.space_id = $2::int AND s.first_position < $3::bigint + $4::bigint
		AND s.first_position + s.code_num > $3::bigint)
RETURNING id

-- code_set_list: The sets of a coupon, one set, or the set that a command has made.
-- $1 coupon, $2 set, $3 request; of the others NULL: any
SELECT s.id, s.coupon_id, s.kind, s.space_id, s.first_position, s.code_num, s.pattern, s.source,
	s.revoked_at IS NOT NULL AS is_revoked, p.alphabet, p.key_version, s.for_user,
	to_char(s.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to
FROM code_set AS s LEFT JOIN code_space AS p ON p.id = s.space_id
WHERE ($1::bigint IS NULL OR s.coupon_id = $1::bigint) AND ($2::bigint IS NULL OR s.id = $2::bigint)
	AND ($3::text IS NULL OR s.request = $3::text)
ORDER BY s.id

-- code_set_revoke: Revokes a set, and returns its coupon. No row: there is no such set.
-- $1 set
SELECT s.coupon_id, code_revoke(ARRAY[s.id], ARRAY[NULL]::bigint[], ARRAY[s.coupon_id])
FROM code_set AS s
WHERE s.id = $1::bigint

-- code_set_revoked: Who has revoked a set, and when.
-- $1 set
SELECT id::text AS set, coupon_id::text AS coupon, revoked_by,
	to_char(revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at
FROM code_set WHERE id = $1::bigint AND revoked_at IS NOT NULL

-- code_space_id: The id of a space of codes. It is recorded, and so is its key, if it is not yet.
-- To be run under the lock "codes".
-- $1 form, $2 alphabet, $3 version of the key, $4 its fingerprint
WITH key AS (
	INSERT INTO code_key (version, fingerprint) VALUES ($3::int, $4::text)
	ON CONFLICT (version) DO NOTHING
), space AS (
	INSERT INTO code_space (form, alphabet, key_version) VALUES ($1::text, $2::text, $3::int)
	ON CONFLICT (form, alphabet, key_version) DO NOTHING
	RETURNING id
)
SELECT id FROM space
UNION ALL
SELECT id FROM code_space WHERE form = $1::text AND alphabet = $2::text AND key_version = $3::int

-- code_state: Whether the sets of codes have changed since the same text was returned before.
SELECT concat_ws(' ', count(*), max(id), count(completed_at), sum(edit_num)) AS state
FROM code_set

-- code_stats: The sets of a coupon with their numbers. In a revoked set all codes that are not used
-- are revoked. A word is one code, which stays unused; claimed is how often it was claimed.
-- $1 coupon, $2 after this set, $3 limit
WITH counted AS (
	SELECT s.*, r.row_num, r.used_num, r.revoked_num, r.word,
		coalesce(s.code_num, r.row_num) AS all_num
	FROM code_set AS s LEFT JOIN LATERAL (
		SELECT count(*) AS row_num, count(*) FILTER (WHERE c.state = 'used') AS used_num,
			count(*) FILTER (WHERE c.state = 'revoked') AS revoked_num,
			min(coalesce(c.spelling, c.text)) FILTER (WHERE s.kind = 'word') AS word
		FROM code AS c WHERE c.set_id = s.id) AS r ON true
	WHERE s.coupon_id = $1::bigint AND s.id > $2::bigint
	ORDER BY s.id
	LIMIT $3::bigint
)
SELECT c.id::text AS set, c.kind, coalesce(c.pattern, c.word) AS form, p.key_version,
	c.source AS file, c.completed_at IS NOT NULL AS complete, c.all_num AS codes,
	CASE WHEN c.revoked_at IS NULL THEN c.all_num - c.used_num - c.revoked_num ELSE 0 END
		AS unused,
	c.used_num AS used,
	CASE WHEN c.revoked_at IS NULL THEN c.revoked_num ELSE c.all_num - c.used_num END
		AS revoked,
	CASE WHEN c.kind = 'word' THEN (SELECT count(*) FROM user_coupon AS u
		WHERE u.coupon_id = c.coupon_id AND u.code = c.id::text) END AS claimed,
	c.for_user,
	to_char(c.valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	to_char(c.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
	c.created_by,
	to_char(c.revoked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS revoked_at,
	c.revoked_by
FROM counted AS c LEFT JOIN code_space AS p ON p.id = c.space_id
ORDER BY c.id

-- code_taken: Of codes that were to be stored, those whose text another row has; with its state if
-- it is not unused. LATERAL with OFFSET 0: by the index, whatever the statistics say.
-- $1 set, $2 serials, $3 texts: arrays of one length
SELECT g.serial, c.set_id, c.serial AS other_serial, c.coupon_id,
	CASE WHEN c.state <> 'unused' THEN c.state
		WHEN EXISTS (SELECT FROM code_set AS s
			WHERE s.id = c.set_id AND s.revoked_at IS NOT NULL) THEN 'revoked' END
		AS state
FROM unnest($2::bigint[], $3::text[]) AS g (serial, text),
	LATERAL (SELECT * FROM code WHERE code.text = g.text OFFSET 0) AS c
WHERE (c.set_id, c.serial) <> ($1::bigint, g.serial)
ORDER BY g.serial

-- code_used: Of these codes, those that are used. LATERAL with OFFSET 0: by the index, whatever the
-- statistics say.
-- $1 sets, $2 serials: arrays of one length
SELECT g.ord, c.user_id
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS g (set_id, serial, ord),
	LATERAL (SELECT * FROM code WHERE code.set_id = g.set_id AND code.serial = g.serial
		OFFSET 0) AS c
WHERE c.state = 'used'
ORDER BY g.ord

-- code_word: Stores a word. No row: a code has its text.
-- $1 set, $2 coupon, $3 text, $4 as it is to be shown
INSERT INTO code (set_id, serial, coupon_id, text, spelling, state)
VALUES ($1::bigint, 0, $2::bigint, $3::text, nullif($4::text, $3::text), 'unused')
ON CONFLICT DO NOTHING
RETURNING set_id
