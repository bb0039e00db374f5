-- The last id that the sequence of coupon ids gave.
SELECT coalesce(pg_sequence_last_value('coupon_id_seq'), 1000) AS id
