-- What couponctl migrate has applied; see docs/about/hacking.md.

-- function_init: The table of applied function files: see docs/about/hacking.md. Run by the owner
-- of the database.
CREATE TABLE IF NOT EXISTS schema_function (
	name       text PRIMARY KEY, -- of the file in sql/function/
	version    int NOT NULL CHECK (version > 0),
	checksum   text NOT NULL,    -- of the file
	definition text NOT NULL,    -- the checksum of what PostgreSQL stores of it
	applied_at timestamptz NOT NULL DEFAULT now()
)

-- function_record: Records that a function file was applied, with the function's definition in the
-- database. No row: the file did not create a function with that signature.
-- $1 name of the file, $2 signature, $3 version, $4 checksum of the file
INSERT INTO schema_function AS f (name, version, checksum, definition)
SELECT $1::text, $3::int, $4::text, md5(pg_get_functiondef(p.oid))
FROM pg_proc AS p
WHERE p.oid = to_regprocedure($2::text)
ON CONFLICT (name) DO UPDATE
SET version = excluded.version, checksum = excluded.checksum, definition = excluded.definition,
	applied_at = now()
RETURNING f.name

-- function_state: The record of a function file. No row: the file was never applied. is_live: the
-- function in the database still has the definition that was applied.
-- $1 name of the file, $2 signature
SELECT f.version, f.checksum,
	f.definition IS NOT DISTINCT FROM (
		SELECT md5(pg_get_functiondef(p.oid))
		FROM pg_proc AS p WHERE p.oid = to_regprocedure($2::text)) AS is_live
FROM schema_function AS f
WHERE f.name = $1::text

-- database_shape: Whether the database can have the tables: its encoding, and whether there is the
-- schema that they are in.
SELECT current_setting('server_encoding') AS encoding, current_database() AS name,
	to_regnamespace('public') IS NOT NULL AS has_schema

-- migration_init: The table of applied migrations. Run by the owner of the database.
CREATE TABLE IF NOT EXISTS schema_migration (
	version    int PRIMARY KEY,
	name       text NOT NULL,
	checksum   text NOT NULL, -- of its files
	applied_at timestamptz NOT NULL DEFAULT now()
)

-- migration_list: The applied migrations. A database from before 0.9.0 has no checksums.
SELECT m.version, m.name, to_jsonb(m) ->> 'checksum' AS checksum
FROM schema_migration AS m ORDER BY m.version

-- migration_record: Records an applied migration.
-- $1 version, $2 name, $3 checksum
INSERT INTO schema_migration (version, name, checksum) VALUES ($1::int, $2::text, $3::text)

-- role_login: The statement that gives a role a password, with which it may log in.
-- $1 role, $2 what PostgreSQL keeps of the password
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', $1::text, $2::text) AS statement

-- roles_record: Records the text of sql/roles.sql and the rights that the database has now. is_new:
-- one of them is another than the last time.
-- $1 the text
WITH now_has AS (
	SELECT md5(string_agg(o.line, E'\n' ORDER BY o.line COLLATE "C")) AS definition
	FROM (
		SELECT concat_ws(' ', c.oid::regclass, c.relacl, (
			SELECT array_agg(a.attname || ' ' || a.attacl::text ORDER BY a.attnum)
			FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL)) AS line
		FROM pg_class AS c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
		UNION ALL
		SELECT concat_ws(' ', p.oid::regprocedure, p.proacl)
		FROM pg_proc AS p
		WHERE p.pronamespace = 'public'::regnamespace
		UNION ALL
		SELECT concat_ws(' ', 'schema', n.nspacl)
		FROM pg_namespace AS n
		WHERE n.nspname = 'public'
	) AS o
), before AS (
	SELECT checksum, definition FROM schema_function WHERE name = 'roles'
), recorded AS (
	INSERT INTO schema_function (name, version, checksum, definition)
	SELECT 'roles', 1, md5($1::text), now_has.definition FROM now_has
	ON CONFLICT (name) DO UPDATE
	SET checksum = excluded.checksum, definition = excluded.definition, applied_at = now()
)
SELECT NOT EXISTS (SELECT FROM before JOIN now_has USING (definition)
	WHERE before.checksum = md5($1::text)) AS is_new
