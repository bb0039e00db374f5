-- Records that a function file was applied, with the function's definition in the database. No row:
-- the file did not create a function with that signature.
-- $1 name of the file, $2 signature, $3 version, $4 checksum of the file
INSERT INTO schema_function AS f (name, version, checksum, definition)
SELECT $1::text, $3::int, $4::text, md5(pg_get_functiondef(p.oid))
FROM pg_proc AS p
WHERE p.oid = to_regprocedure($2::text)
ON CONFLICT (name) DO UPDATE
SET version = excluded.version, checksum = excluded.checksum, definition = excluded.definition,
	applied_at = now()
RETURNING f.name
