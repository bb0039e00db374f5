-- The keys that have made codes, by their fingerprints.
SELECT version, fingerprint FROM code_key ORDER BY version
