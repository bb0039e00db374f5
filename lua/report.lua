-- Records the highest number that a gateway has seen of one generation of a coupon, because Redis
-- may have lost it. In a generation older than the coupon's, the reported receives are in flight:
-- their units move from the stock to reserved at once.
--
-- KEYS  1 coupon:{ID}       hash
--       2 coupon:{ID}:seen  hash: generation -> the highest number that gateways have reported
-- ARGV  1 generation  1..2^53-1
--       2 seq         1..2^53-1
--       3 run_id      of this process of Redis, if the gateway was given receives of the coupon
--                     just before it lost another process; or empty
--
-- With a run_id the coupon is to be rebuilt if it is open on this process already: what the other
-- process did not replicate may have the numbers of receives that were accepted here.
--
-- Returns 1 if the number was recorded, or a rebuild is to follow; 0 if it is not higher than the
-- one that Redis has.

local PROCESS_LEN = 32 -- digits of a run id before the term of the lease
local ALONE_MS = '86400000' -- until a report expires whose coupon Redis does not have

keys_check(':seen')
arguments_check(3, 3)
local generation, seq = integer_check(1, 'generation', 1), integer_check(2, 'seq', 1)
local run_id = ARGV[3] ~= '' and run_id_check(3)
types_check('hash', 'hash')

local high = 'high:' .. ARGV[1]
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', high, 'placeholder',
	'seq', 'run_id')
local current = not c[5] and integer(c[1])

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

local rebuilds = current == generation and run_id and c[7]
	and sub(c[7], 1, PROCESS_LEN) == sub(run_id, 1, PROCESS_LEN)
if rebuilds then
	call('HSET', KEYS[1], 'rebuild', '1')
end
if current == generation and (integer(c[6]) or 0) >= seq then
	return rebuilds and 1 or 0
end
local reported = integer(call('HGET', KEYS[2], ARGV[1]))
if reported and reported >= seq then
	return rebuilds and 1 or 0
end
call('HSET', KEYS[2], ARGV[1], ARGV[2])
-- The report expires with the coupon. If Redis does not have the coupon, the keeper reads the
-- report when it loads the coupon; for a settled campaign it is not needed.
local expires = call('PEXPIRETIME', KEYS[1])
if expires > 0 then
	call('PEXPIREAT', KEYS[2], decimal(expires))
elseif not current then
	call('PEXPIRE', KEYS[2], ALONE_MS)
end
return 1
