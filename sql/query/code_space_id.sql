-- The id of a space of codes. No row: it is not recorded.
-- $1 form, $2 alphabet, $3 version of the key
SELECT id FROM code_space WHERE form = $1::text AND alphabet = $2::text AND key_version = $3::int
