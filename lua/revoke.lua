-- Marks codes of a coupon as revoked, so that nobody claims them any more, and records how far
-- Redis has the revocations of PostgreSQL, which numbers them: whoever opens the coupon, after a
-- restart (verify.lua) or a rebuild (place.lua), must have them up to this number.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:codes
-- ARGV  1 run_id      of this Redis process: 40 hexadecimal digits
--       2 generation  1..2^53-1: of the copy of the coupon whose codes are being marked
--       3 from        0..2^53-1: the revocations above this number are being marked
--       4 to          0..2^53-1: with the last of these calls all up to this number are marked
--       5 is_last     0 or 1
--       then 0..1024 codes: 'SET.SERIAL', or 'SET' for a word, or for all of a set that are not
--       claimed
--
-- Returns {'ok', generation, seq}: whatever was accepted before this has no higher numbers; or
-- {'ok'} if the coupon is not verified or is held: Redis may have lost the highest numbers. If
-- Redis does not have the coupon, which is loaded from a later state of PostgreSQL then: 'missing'.
-- If the coupon is a placeholder (hold.lua), only the number is written, at once: also 'missing'.
-- What is put in its place has been filled with all up to this number (place.lua). If Redis has
-- another generation, or only revocations below `from`, nothing is written: 'behind'.

local HEAD = 5

keys_check(':codes')
codes_check(HEAD + 1)
local run_id = run_id_check(1)
integer_check(2, 'generation', 1)
local from, to = integer_check(3, 'from'), integer_check(4, 'to')
local is_last = integer_check(5, 'is_last', 0, 1) == 1
types_check('hash', 'hash')

local c = call('HMGET', KEYS[1], 'generation', 'seq', 'revocation', 'placeholder', 'run_id')
local generation, seq, known = integer(c[1], 1), integer(c[2]), integer(c[3] or '0')
if not c[1] and call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end
if not generation or not seq or not known then
	fail('coupon: its generation, seq or revocation is malformed')
end
if not c[4] and (known < from or c[1] ~= ARGV[2]) then
	return 'behind'
end

local hset = not c[4] and codes_revoke(KEYS[2], HEAD + 1)
local done = hset and pcall(unpack(hset))
if type(done) == 'table' then
	return done
end
-- With the other keys of a settled coupon.
local left_ms = hset and call('PTTL', KEYS[1]) or 0
if left_ms > 0 then
	call('PEXPIRE', KEYS[2], left_ms)
end
if to > known and (is_last or c[4]) then
	call('HSET', KEYS[1], 'revocation', decimal(to))
end
if c[4] then
	return 'missing'
end
return c[5] == run_id and {'ok', generation, seq} or {'ok'}
