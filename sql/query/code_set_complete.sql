-- Records that the file of a set is complete.
-- $1 set
UPDATE code_set SET completed_at = now() WHERE id = $1::bigint AND completed_at IS NULL
