-- Records a key, if its version is not recorded.
-- $1 version, $2 fingerprint
INSERT INTO code_key (version, fingerprint) VALUES ($1::int, $2::text)
ON CONFLICT (version) DO NOTHING
