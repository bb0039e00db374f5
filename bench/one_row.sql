-- The worker's job at one row a transaction: raise the coupon's count, insert the user coupon,
-- commit.
\set user random(1, 9000000000000000000)
BEGIN;
UPDATE bench_coupon SET issued_num = issued_num + 1 WHERE id = 1;
INSERT INTO bench_user_coupon (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
VALUES (:user, 1, 1, gen_random_uuid(), 0, now(), now()) ON CONFLICT DO NOTHING;
COMMIT;
