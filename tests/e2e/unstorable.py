"""PostgreSQL refuses user coupons, so that workers dead-letter their messages."""

import contextlib

import psycopg

CHECK = "nobody_for_a_while"


@contextlib.contextmanager
def nothing_storable(stack, allowed="user_id = ''"):
    """A CHECK that refuses every user coupon but the allowed ones."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        pg.execute(f"ALTER TABLE user_coupon ADD CONSTRAINT {CHECK} CHECK ({allowed}) NOT VALID")
        try:
            yield
        finally:
            pg.execute(f"ALTER TABLE user_coupon DROP CONSTRAINT {CHECK}")
