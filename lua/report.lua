-- A gateway reports the highest number it has ever seen of one generation of a coupon, where Redis
-- may have lost it. What is reported of an older generation than the coupon's is in flight: it is
-- taken out of the stock at once.
--
-- KEYS  1 coupon:{ID}       hash
--       2 coupon:{ID}:seen  hash: generation -> the highest number that gateways have reported
-- ARGV  1 generation  1..2^53-1
--       2 seq         1..2^53-1
--
-- Returns 1 if this was news, else 0. Errors: ERR couponmq: <what is wrong>, and then nothing was
-- written.

local ALONE_MS = '86400000' -- how long a report lasts of a coupon that Redis does not have

keys_check(':seen')
arguments_check(2, 2)
local generation, seq = integer_check(1, 'generation', 1), integer_check(2, 'seq', 1)
types_check('hash', 'hash')

local high = 'high:' .. ARGV[1]
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', high)
local current = integer(c[1])

if current and current > generation then
	local stock, reserved, known = integer(c[2]), integer(c[3]), integer(c[4])
	if not stock or not reserved then
		fail('coupon: its stock or reserved is malformed')
	end
	if not known or known >= seq then
		return 0
	end
	local moved = math.min(seq - known, stock)
	call('HSET', KEYS[1], high, ARGV[2], 'stock', decimal(stock - moved),
		'reserved', decimal(reserved + moved))
	return 1
end

local told = integer(call('HGET', KEYS[2], ARGV[1]))
if told and told >= seq then
	return 0
end
call('HSET', KEYS[2], ARGV[1], ARGV[2])
-- It lasts as long as the coupon. Where there is none a keeper that still needs it reads it soon,
-- and of a campaign that is over it is not needed.
local expires = call('PEXPIRETIME', KEYS[1])
if expires > 0 then
	call('PEXPIREAT', KEYS[2], decimal(expires))
elseif not current then
	call('PEXPIRE', KEYS[2], ALONE_MS)
end
return 1
