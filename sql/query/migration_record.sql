-- Records an applied migration.
-- $1 version, $2 name
INSERT INTO schema_migration (version, name) VALUES ($1::int, $2::text)
