-- Lets the keys of a closed coupon expire, when nothing of it is in flight any more. No other
-- script does that.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:known
--       5 coupon:{ID}:seen
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 generation  1..2^53-1, the one that PostgreSQL has settled
--       3 seq         0..2^53-1, the last receive number in it that PostgreSQL has settled
--       4 keep_ms     1..2^53-1, how long the keys stay
--
-- Returns 'expires'; otherwise nothing is written: 'missing'; 'fenced' if the coupon has a higher
-- fence; 'busy' if it is not closed, has another generation or number, reserves something, or has
-- anything in its outbox or among the known receives.
--
-- Errors: ERR couponmq: <which argument, field or key, and what is wrong with it>, and then nothing
-- was written.

keys_check(':users', ':outbox', ':known', ':seen')
arguments_check(4, 4)
local fence, generation = integer_check(1, 'fence'), integer_check(2, 'generation', 1)
local seq, keep_ms = integer_check(3, 'seq'), integer_check(4, 'keep_ms', 1)

types_check('hash', 'hash', 'hash', 'set', 'hash')
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'fence', 'status', 'generation', 'seq', 'reserved')
if is_fenced(c[1], fence) then
	return 'fenced'
end
if c[2] ~= 'closed' or integer(c[3]) ~= generation or integer(c[4]) ~= seq or integer(c[5]) ~= 0
	or call('EXISTS', KEYS[3], KEYS[4]) > 0 then
	return 'busy'
end

-- One moment for all of them: never a part of a coupon.
local at = decimal(now_ms() + keep_ms)
call('HSET', KEYS[1], 'fence', ARGV[1])
for i = 1, #KEYS do
	call('PEXPIREAT', KEYS[i], at)
end
return 'expires'
