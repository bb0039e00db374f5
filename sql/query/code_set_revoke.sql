-- Revokes a set.
-- $1 set
SELECT code_set_revoke($1::bigint)
