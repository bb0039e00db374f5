-- The settings of this session that common/program/durability_table.h checks.
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')
