-- Reads a coupon, and Redis' clock, for the `coupon` operation.
--
-- KEYS  1 coupon:{ID}  hash
--
-- Returns {status, total, stock, limit, begin, end, now}, all text, times in ms since the epoch.
-- For an unknown coupon all but `now` are nil.

local fields = call('HMGET', KEYS[1], 'status', 'total', 'stock', 'limit', 'begin', 'end')

fields[7] = decimal(now_ms())
return fields
