-- Declares a cursor for the codes of a coupon that were revoked after a revocation, unordered:
-- 'SET.SERIAL', and 'SET' of a word or a revoked set.
-- $1 coupon, $2 above this revocation
DECLARE rebuild_revoked NO SCROLL CURSOR FOR
SELECT c.set_id || CASE WHEN s.kind = 'word' THEN '' ELSE '.' || c.serial END AS code
FROM code_set AS s JOIN code AS c ON c.set_id = s.id AND c.revocation_num > 0
	AND c.revocation_num > $2::bigint
WHERE s.coupon_id = $1::bigint
UNION ALL
SELECT id::text FROM code_set WHERE coupon_id = $1::bigint AND revocation_num > $2::bigint
