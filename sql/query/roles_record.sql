-- Records the text of sql/roles.sql and the rights that the database has now. is_new: one of them
-- is another than the last time.
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
