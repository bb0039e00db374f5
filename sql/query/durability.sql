-- How the server is set, for this session, where common/durability_table.h wants it to be set in a certain way.
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')
