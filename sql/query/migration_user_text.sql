-- How much migration 0010 has to copy: user coupons, and what receive_rejected and coupon_late
-- keep. Rows of a table that was never analysed are estimated by its size, at 110 bytes a row.
SELECT coalesce(sum(rows) FILTER (WHERE table_name = 'user_coupon'), 0)::bigint AS rows_num,
	coalesce(sum(rows) FILTER (WHERE table_name <> 'user_coupon'), 0)::bigint AS refused_num
FROM (SELECT tables.table_name,
		CASE WHEN c.reltuples >= 0 AND c.relpages > 0
			THEN c.reltuples * (pg_relation_size(c.oid) / 8192.0) / c.relpages
			ELSE pg_relation_size(c.oid) / 110.0 END AS rows
	FROM (VALUES ('user_coupon'), ('receive_rejected'), ('coupon_late')) AS tables (table_name),
		pg_partition_tree(tables.table_name::regclass) AS part
		JOIN pg_class AS c ON c.oid = part.relid
	WHERE part.isleaf) AS sizes
