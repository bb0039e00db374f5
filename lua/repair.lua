-- Puts the stock and `reserved` of a coupon right whose slots were found sound, without closing it:
-- only if its numbers are still those that were compared. An accepted receive changes seq, a
-- freed slot the stock or `lost`, a late outcome `late`, new terms the total.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
--       4 coupon:{ID}:known  set of receives in flight that have a slot in users
-- ARGV  1 fence       NUMBER:FROM:UNTIL, see fence_check()
--       2 generation  1..2^53-1
--       3 seq  4 total  5 stock  6 reserved  7 lost  8 late  9 known
--                     0..2^53-1: as they were compared; known is the size of that set
--      10 stock  11 reserved
--                     0..2^53-1: as they must be
--
-- Returns 'right'; otherwise nothing is written: 'missing'; 'fenced'; 'changed' if a number
-- differs.

keys_check(':users', ':outbox', ':known')
arguments_check(11, 11)
local fence, is_over = fence_check(1)
integer_check(2, 'generation', 1)
for i, name in ipairs({'seq', 'total', 'stock', 'reserved', 'lost', 'late', 'known', 'stock',
	'reserved'}) do
	integer_check(i + 2, name)
end

types_check('hash', 'hash', 'hash', 'set')
local c = call('HMGET', KEYS[1], 'generation', 'seq', 'total', 'stock', 'reserved', 'lost', 'late',
	'fence')
if not c[1] then
	return 'missing'
end
if is_over or is_fenced(c[8], fence) then
	return 'fenced'
end
for i = 1, 7 do
	if (c[i] or '0') ~= ARGV[i + 1] then
		return 'changed'
	end
end
if decimal(call('SCARD', KEYS[4])) ~= ARGV[9] then
	return 'changed'
end
call('HSET', KEYS[1], 'stock', ARGV[10], 'reserved', ARGV[11])
return 'right'
