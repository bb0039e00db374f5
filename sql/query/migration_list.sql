-- The applied migrations.
SELECT version, name FROM schema_migration ORDER BY version
