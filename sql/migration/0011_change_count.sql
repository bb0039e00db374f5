-- How many transactions have changed something. The numbers only grow, and each is copied to Redis
-- after its COMMIT: a PostgreSQL whose numbers are below the copy was put back to an earlier
-- moment. There are many rows, so that no transaction waits for another one to count.
CREATE TABLE change_count (
	stripe smallint PRIMARY KEY,
	num    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO change_count (stripe) SELECT generate_series(0, 63);
GRANT SELECT, INSERT, UPDATE (num) ON change_count TO couponmq_app;

-- Changes by operators and the keeper. Those of settle() are counted by sql/query/settle.sql.
CREATE OR REPLACE FUNCTION coupon_change_count() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	PERFORM change_note();
	RETURN NULL;
END
$$;

CREATE TRIGGER coupon_change_count
	AFTER INSERT OR UPDATE OF name, total_num, user_limit, begin_at, end_at, valid_days,
		valid_from, valid_to, status, version, generation, settled_at ON coupon
	FOR EACH STATEMENT EXECUTE FUNCTION coupon_change_count();
