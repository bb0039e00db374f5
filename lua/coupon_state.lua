-- What the `coupon` operation answers, at one moment of Redis' clock.
--
-- KEYS  1 coupon:{ID}  hash
--
-- Returns {status, total, stock, limit, begin, end, now}, all text, times in ms since the epoch; of
-- an unknown coupon all but the last are nil.

local fields = call('HMGET', KEYS[1], 'status', 'total', 'stock', 'limit', 'begin', 'end')

fields[7] = decimal(now_ms())
return fields
