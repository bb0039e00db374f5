-- When the keys of a closed and settled coupon expire in Redis. NULL: they do not.
ALTER TABLE coupon ADD COLUMN expires_at timestamptz;

GRANT UPDATE (expires_at) ON coupon TO couponmq_app;

-- See query/coupon_page.sql and query/coupon_expiring_page.sql, which repeat the predicates.
DROP INDEX coupon_watched;
CREATE INDEX coupon_watched ON coupon (id)
	WHERE status IN ('published', 'paused') OR (status = 'closed' AND (settled_at IS NULL OR expires_at IS NULL));
CREATE INDEX coupon_expiring ON coupon (expires_at, id) WHERE settled_at IS NOT NULL AND expires_at IS NOT NULL;

-- A message that comes after all: one that nobody knew to be in flight. What was said of the coupon is not so any more, and
-- the keeper has to look at it again. Only statements that count outcomes pay for it, with one comparison.
CREATE FUNCTION coupon_unsettle() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
	UPDATE coupon SET settled_at = NULL WHERE id = NEW.id;
	RETURN NULL;
END
$$;

CREATE TRIGGER coupon_unsettle AFTER UPDATE OF issued_num, settled_num ON coupon
	FOR EACH ROW WHEN (NEW.settled_at IS NOT NULL)
	EXECUTE FUNCTION coupon_unsettle();
