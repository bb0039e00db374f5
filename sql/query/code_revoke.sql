-- Revokes codes; those that are used stay as they are. Returns how many were not revoked before.
-- $1 sets, $2 serials, $3 coupons: arrays of one length
SELECT code_revoke($1::bigint[], $2::bigint[], $3::bigint[]) AS revoked
