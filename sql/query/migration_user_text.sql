-- How much migration 0010 has to copy: user coupons, and what receive_rejected and coupon_late
-- keep. Rows of a table that was never analysed are estimated by its size, at 110 bytes a row.
SELECT coalesce(sum(rows) FILTER (WHERE NOT is_refused), 0)::bigint AS rows_num,
	coalesce(sum(rows) FILTER (WHERE is_refused), 0)::bigint AS refused_num
FROM (SELECT is_refused,
		CASE WHEN c.reltuples >= 0 AND c.relpages > 0
			THEN c.reltuples * (pg_relation_size(c.oid) / 8192.0) / c.relpages
			ELSE pg_relation_size(c.oid) / 110.0 END AS rows
	FROM (SELECT relid, false AS is_refused FROM pg_partition_tree('user_coupon')
			WHERE isleaf
		UNION ALL VALUES ('receive_rejected'::regclass, true),
			('coupon_late'::regclass, true)) AS tables
		JOIN pg_class AS c ON c.oid = tables.relid) AS sizes
