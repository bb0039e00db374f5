-- What the `coupon` operation tells, at one moment of Redis time.
--
-- KEYS  1 coupon:{ID}  hash
--
-- Returns {status, total, stock, limit, begin, end, now}, all text, times in ms since the epoch; of an unknown coupon all but
-- the last are nil.

local fields = redis.call('HMGET', KEYS[1], 'status', 'total', 'stock', 'limit', 'begin', 'end')
local time = redis.call('TIME')

fields[7] = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return fields
