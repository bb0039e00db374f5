-- Until the transaction ends: reading all rows of a large coupon takes a while.
SET LOCAL statement_timeout = '120s'
