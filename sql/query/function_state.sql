-- The record of a function file. No row: the file was never applied. is_live: the function in the
-- database still has the definition that was applied.
-- $1 name of the file, $2 signature
SELECT f.version, f.checksum,
	f.definition IS NOT DISTINCT FROM (
		SELECT md5(pg_get_functiondef(p.oid))
		FROM pg_proc AS p WHERE p.oid = to_regprocedure($2::text)) AS is_live
FROM schema_function AS f
WHERE f.name = $1::text
