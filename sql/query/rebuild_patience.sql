-- Raises the statement timeout of the transaction: reading all rows of a large coupon takes long.
SET LOCAL statement_timeout = '120s'
