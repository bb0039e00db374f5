-- Records a space of codes, if it is not recorded.
-- $1 form, $2 alphabet, $3 version of the key
INSERT INTO code_space (form, alphabet, key_version) VALUES ($1::text, $2::text, $3::int)
ON CONFLICT (form, alphabet, key_version) DO NOTHING
