-- Applies newer terms to a coupon, for the keeper and couponctl. Taken slots do not change: a
-- change of the total changes the stock and, if the stock is used up, `lost` (see slot_free.lua).
-- When a rebuild is due and nothing is lost, more slots may be taken than are counted here: then a
-- greater total adds nothing to the stock, and the rebuild computes it. It is not due any more when
-- as much is taken as the total allows, unless a voided receive waits for it (slot_free.lua).
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 version  1..2^53-1, of these terms
--       2 status   open, paused or closed
--       3 total    0..2^53-1
--       4 begin    ms since the epoch, 0 = no bound
--       5 end      ms since the epoch, 0 = no bound
--       6 limit    1..100, coupons per user
--       7 fence    NUMBER:FROM:UNTIL, see fence_check(); omitted by couponctl, which holds a lock
--                  on the coupon in PostgreSQL
--
-- Returns 'applied'; otherwise nothing is written: 'fenced'; 'missing'; 'current' if the coupon has
-- this version or a later one; {'taken', n} if total is less than n, the number of taken slots and
-- reserved receives, or if the limit would be lower and n is not 0.

keys_check(':users', ':outbox')
arguments_check(6, 7)
local version, status = integer_check(1, 'version', 1), status_check(2)
local total = integer_check(3, 'total')
integer_check(4, 'begin')
integer_check(5, 'end')
local limit = integer_check(6, 'limit', 1, 100)
local fence, is_over
if ARGV[7] then
	fence, is_over = fence_check(7)
end

types_check('hash', 'hash', 'hash')
if call('HEXISTS', KEYS[1], 'placeholder') == 1 or call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'version', 'total', 'stock', 'lost', 'fence', 'rebuild',
	'limit', 'displaced')
local known, total_old, stock_old = integer(c[1], 1), integer(c[2]), integer(c[3])
local lost_old = integer(c[4] or '0')
if not known or not total_old or not stock_old or not lost_old
	or stock_old + lost_old > total_old then
	fail('coupon: its version, total, stock or lost is malformed')
end
if fence and (is_over or is_fenced(c[5], fence)) then
	return 'fenced'
end
if known >= version then
	return 'current'
end
local taken = total_old - stock_old - lost_old
if total < taken or (taken > 0 and limit < (integer(c[7]) or 0)) then
	return {'taken', taken}
end
local stock = math.max(total - taken - lost_old, 0)
if c[6] and lost_old == 0 then
	stock = math.min(stock, stock_old)
end

call('HSET', KEYS[1], 'version', ARGV[1], 'status', status, 'total', ARGV[3],
	'stock', decimal(stock), 'begin', ARGV[4], 'end', ARGV[5],
	'limit', ARGV[6])
if total - taken == 0 then
	call('HDEL', KEYS[1], 'lost')
	if not c[8] then
		call('HDEL', KEYS[1], 'rebuild')
	end
elseif total - taken < lost_old then
	call('HSET', KEYS[1], 'lost', decimal(total - taken))
end
return 'applied'
