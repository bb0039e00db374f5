-- Sets the expiry time of the keys of a closed coupon when no receive of it is in flight. No other
-- script does this.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:known
--       5 coupon:{ID}:seen  6 coupon:{ID}:dead  7 coupon:{ID}:settled
--       8 coupon:{ID}:rejected  9 coupon:{ID}:terms  10 coupon:{ID}:codes
-- ARGV  1 fence       NUMBER:FROM:UNTIL, see fence_check()
--       2 generation  1..2^53-1, the one that PostgreSQL has settled
--       3 seq         0..2^53-1, the last receive number in it that PostgreSQL has settled
--       4 keep_ms     1..2^53-1, time until the keys expire
--
-- Returns 'expires'; otherwise nothing is written: 'missing'; 'fenced'; 'busy' if it is not closed,
-- its generation or seq differs, its `reserved` is not 0, or its outbox or its set of known
-- receives is not empty.

keys_check(':users', ':outbox', ':known', ':seen', ':dead', ':settled', ':rejected', ':terms',
	':codes')
arguments_check(4, 4)
local fence, is_over = fence_check(1)
local generation = integer_check(2, 'generation', 1)
local seq, keep_ms = integer_check(3, 'seq'), integer_check(4, 'keep_ms', 1)

types_check('hash', 'hash', 'hash', 'set', 'hash', 'set', 'list', 'list', 'string',
	'hash')
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'fence', 'status', 'generation', 'seq', 'reserved')
if is_over or is_fenced(c[1], fence) then
	return 'fenced'
end
if c[2] ~= 'closed' or integer(c[3]) ~= generation or integer(c[4]) ~= seq or integer(c[5]) ~= 0
	or call('EXISTS', KEYS[3], KEYS[4]) > 0 then
	return 'busy'
end

-- One expiry time for all keys, so that a coupon never exists in part.
local at = decimal(now_ms() + keep_ms)
call('HSET', KEYS[1], 'fence', decimal(fence))
call('HDEL', KEYS[1], 'displaced') -- each of these has its outcome
for i = 1, #KEYS do
	call('PEXPIREAT', KEYS[i], at)
end
return 'expires'
