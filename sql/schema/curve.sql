-- How a sale went. For people and pages: nothing depends on it, and rows may be missing.

-- What there was of a coupon, at most every second for its first 600 rows, then every minute, after
-- 10,000 rows every hour; only when something was another than in the row before. The keeper adds
-- the rows, and removes them after 400 days.
CREATE TABLE coupon_curve (
	coupon_id    bigint NOT NULL,
	num          int NOT NULL,             -- of the row, from 1
	at           timestamptz NOT NULL DEFAULT now(),
	total_num    bigint NOT NULL,          -- these three in Redis
	stock_num    bigint NOT NULL,
	taken_num    bigint NOT NULL,
	issued_num   bigint NOT NULL,          -- these two in PostgreSQL
	rejected_num bigint NOT NULL,
	refused_num  bigint NOT NULL,          -- the sum of coupon_refusal
	PRIMARY KEY (coupon_id, num)
);

-- For the removal. The rows lie in the order of their times.
CREATE INDEX coupon_curve_at ON coupon_curve USING brin (at) WITH (pages_per_range = 32);

-- How many requests gateways have refused, by the day of the campaign's time zone and the status of
-- the answer. Counts may be missing: what a process had not handed on when it ended.
CREATE TABLE coupon_refusal (
	coupon_id bigint NOT NULL,
	day       date NOT NULL,
	answer    text NOT NULL CHECK (length(answer) <= 32),
	num       bigint NOT NULL,
	PRIMARY KEY (coupon_id, day, answer)
) WITH (fillfactor = 50); -- while requests are refused, rows are changed every second
