-- Local times of time zones, for operators.

-- time_readings: The instants at which clocks of a zone show a local time: usually one; two where
-- they are set back. None where they are set forward: then, with is_shown false, what it would be
-- by the offset before and by that after.
-- $1 local time, in ms as if it were in UTC, $2 time zone
WITH wanted AS (
	SELECT timestamp 'epoch' + $1::bigint * interval '1 ms' AS local
), reading AS (
	SELECT DISTINCT local, (local - ((near AT TIME ZONE $2::text) - (near AT TIME ZONE 'UTC')))
		AT TIME ZONE 'UTC' AS at
	FROM wanted, unnest(ARRAY[(local - interval '24 hours') AT TIME ZONE 'UTC',
		(local + interval '24 hours') AT TIME ZONE 'UTC']) AS near
), judged AS (
	SELECT at, at AT TIME ZONE $2::text = local AS is_shown FROM reading
)
SELECT floor(extract(epoch FROM at) * 1000)::bigint AS ms, is_shown,
	zone_text(at, $2::text) AS text
FROM judged
WHERE is_shown OR NOT EXISTS (SELECT FROM judged WHERE is_shown)
ORDER BY at

-- time_zone: The zone with this name, in any case, as the IANA database spells it (NULL: there is
-- none), and some whose names contain the text.
-- $1 name
WITH zone AS (
	-- Not posix/…, localtime and others that are files beside the zones.
	SELECT name FROM pg_timezone_names WHERE name ~ '^[A-Z]' AND name <> 'Factory'
)
SELECT (SELECT name FROM zone WHERE lower(name) = lower($1::text)) AS name,
	(SELECT string_agg(name, ', ') FROM (
		SELECT name FROM zone
		WHERE $1::text <> '' AND strpos(lower(name), replace(lower($1::text), ' ', '_')) > 0
		ORDER BY name
		LIMIT 3) AS near) AS near
