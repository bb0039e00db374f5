-- Reads a coupon, and Redis' clock, for the `coupon` operation.
--
-- KEYS  1 coupon:{ID}  hash
-- ARGV  1 run_id       of the Redis process that the gateway is connected to
--
-- Returns {status, total, stock, limit, begin, end, now}, all text, times in ms since the epoch.
-- The status is 'unverified' if the coupon was not verified on this Redis process, or is held for a
-- rebuild: the other fields may be old then, or those of a placeholder. For an unknown coupon all
-- but `now` are nil.

local fields = call('HMGET', KEYS[1], 'status', 'total', 'stock', 'limit', 'begin', 'end')

if fields[1] and call('HGET', KEYS[1], 'run_id') ~= ARGV[1] then
	fields[1] = 'unverified'
end
fields[7] = decimal(now_ms())
return fields
