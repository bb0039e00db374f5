-- Keeps the row of a coupon in PostgreSQL, should PostgreSQL be put back to an earlier moment. An
-- older version never replaces a newer one.
--
-- KEYS  1 coupon:{ID}:terms  string: "VERSION JSON"
-- ARGV  1 fence    NUMBER:FROM:UNTIL, see fence_check()
--       2 version  1..2^53-1
--       3 row      a JSON object
--
-- Returns 'kept'; otherwise nothing is written: 'fenced'; 'current' if a later version is there.

arguments_check(3, 3)
if #KEYS ~= 1 or not find(KEYS[1], '^coupon:{[1-9]%d*}:terms$') then
	fail('KEYS: not the terms of a coupon')
end
local _, is_over = fence_check(1)
local version = integer_check(2, 'version', 1)
types_check('string')
if is_over then
	return 'fenced'
end
local known = integer(match(call('GETRANGE', KEYS[1], 0, 20), '^(%d+) '))
if known and known > version then
	return 'current'
end
call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[3], 'KEEPTTL')
return 'kept'
