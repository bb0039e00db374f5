-- What is recorded of a function file: no row when nothing is. `is_live`: the database still has
-- the function as it was applied, with the same privileges.
-- $1 name of the file, $2 signature
SELECT f.version, f.checksum,
	f.definition IS NOT DISTINCT FROM (
		SELECT md5(concat_ws(' ', pg_get_functiondef(p.oid), p.proacl))
		FROM pg_proc AS p WHERE p.oid = to_regprocedure($2::text)) AS is_live
FROM schema_function AS f
WHERE f.name = $1::text
