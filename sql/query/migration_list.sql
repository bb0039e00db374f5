-- What was migrated so far.
SELECT version, name FROM schema_migration ORDER BY version
