-- The applied migrations. A database from before 0.9.0 has no checksums.
SELECT m.version, m.name, to_jsonb(m) ->> 'checksum' AS checksum
FROM schema_migration AS m ORDER BY m.version
