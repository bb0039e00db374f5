-- The oldest generations of a coupon are folded into one row of coupon_generation, of generation 0,
-- with the sums of their counts: see sql/function/coupon_generation_open.sql. Workers of the
-- previous version read and write that row as any other.
ALTER TABLE coupon
	ADD COLUMN generation_folded int NOT NULL DEFAULT 0; -- the highest one that is folded

GRANT UPDATE (generation_folded) ON coupon TO couponmq_app;
GRANT DELETE ON coupon_generation TO couponmq_app;
