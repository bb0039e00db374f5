-- Inserts user coupons without raising the coupon's count, 500 rows a transaction.
INSERT INTO bench_user_coupon (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
SELECT (random() * 9e18)::bigint + 1, 1, 1, gen_random_uuid(), 0, now(), now()
FROM generate_series(1, 500)
ON CONFLICT DO NOTHING;
