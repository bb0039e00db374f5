-- version: 1
-- function: zone_text(timestamptz,text)
--
-- A time as clocks of a zone show it, by RFC 3339: 2026-12-24T18:00:00+01:00.
CREATE OR REPLACE FUNCTION zone_text(
	at   timestamptz,
	zone text)
RETURNS text LANGUAGE sql STABLE
AS $$
	SELECT to_char(at AT TIME ZONE zone, 'YYYY-MM-DD"T"HH24:MI:SS')
		|| CASE WHEN minutes < 0 THEN '-' ELSE '+' END
		|| to_char(abs(minutes) / 60, 'FM00') || ':' || to_char(abs(minutes) % 60, 'FM00')
	FROM (SELECT extract(epoch FROM
		(at AT TIME ZONE zone) - (at AT TIME ZONE 'UTC'))::int / 60 AS minutes) AS off
$$;
