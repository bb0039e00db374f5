-- Copies numbers of PostgreSQL's table change_count. A copy only grows.
--
-- KEYS  1 couponmq:changes  hash: stripe to number
-- ARGV  1..64 pairs: stripe (0..63) and its number (0..2^53-1)
--
-- Returns 'ok'. Also when Redis is out of memory, because what follows the copy frees memory. A key
-- of another type is replaced.
--
-- Errors: ERR couponmq: <the argument or key, and what is wrong with it>. On an error nothing is
-- written.

local count = groups_count(0, 2, 64)
if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
for i = 1, count do
	integer_check(i * 2 - 1, 'stripe', 0, 63)
	integer_check(i * 2, 'number')
end
local kind = call('TYPE', KEYS[1]).ok

-- Redis refuses a write for lack of memory only if it is the first one, and never these.
if kind ~= 'hash' and kind ~= 'none' then
	call('UNLINK', KEYS[1])
end
call('HDEL', KEYS[1], '')
for i = 1, count do
	local known = integer(call('HGET', KEYS[1], ARGV[i * 2 - 1]))
	if not known or known < tonumber(ARGV[i * 2]) then
		call('HSET', KEYS[1], ARGV[i * 2 - 1], ARGV[i * 2])
	end
end
return 'ok'
