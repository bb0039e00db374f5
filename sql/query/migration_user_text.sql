-- How much migration 0010 has to copy. Rows of a partition that was never analysed are estimated by
-- its size, at 110 bytes a row.
SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 AND c.relpages > 0
			THEN c.reltuples * (pg_relation_size(c.oid) / 8192.0) / c.relpages
			ELSE pg_relation_size(c.oid) / 110.0 END), 0)::bigint AS rows_num
FROM pg_partition_tree('user_coupon') AS part JOIN pg_class AS c ON c.oid = part.relid
WHERE part.isleaf
