-- Inserts one user coupon a transaction without raising the coupon's count: there is no hot row to
-- wait for, only the insert and its sync. This is a limit to compare with, not a coupon system.
\set user random(1, 9000000000000000000)
INSERT INTO bench_user_coupon (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
VALUES (:user, 1, 1, gen_random_uuid(), 0, now(), now()) ON CONFLICT DO NOTHING;
