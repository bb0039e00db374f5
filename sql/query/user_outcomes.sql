-- The outcomes of all receives of one user for one coupon: the issued ones by slot, then the
-- rejected ones, newest first. At most 200 rows; a user has at most 100 issued ones.
-- $1 coupon, $2 user
(SELECT batch, idx, u.slot, CASE WHEN v.slot IS NULL THEN 'issued' ELSE 'rejected' END AS state,
	CASE WHEN v.slot IS NOT NULL THEN 'voided' END AS reason,
	to_char(valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_from,
	to_char(valid_to AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS valid_to,
	coalesce(u.key, '') AS key
FROM user_coupon AS u LEFT JOIN coupon_void AS v USING (coupon_id, batch, idx)
WHERE coupon_id = $1::bigint AND u.user_id = $2::text
ORDER BY u.slot
LIMIT 100)
UNION ALL
(SELECT batch, idx, slot, 'rejected', reason, NULL, NULL, ''
FROM receive_rejected
WHERE coupon_id = $1::bigint AND user_id = $2::text
ORDER BY rejected_at DESC, batch, idx
LIMIT 100)
