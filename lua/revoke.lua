-- Marks codes of a coupon as revoked, so that nobody redeems them any more, and records how far
-- Redis has the revocations of PostgreSQL, which numbers them: whoever opens the coupon, after a
-- restart (verify.lua) or a rebuild (place.lua), must have them up to this number.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:codes
-- ARGV  1 generation  1..2^53-1: of the copy of the coupon whose codes are being marked
--       2 from        0..2^53-1: the revocations above this number are being marked
--       3 to          0..2^53-1: with these codes all up to this number are marked; 0: more
--                     follow
--       then 0..1024 codes: 'SET.SERIAL', or 'SET' for a word, or for all of a set that are not
--       redeemed
--
-- Returns {'ok', generation, seq}: whatever was accepted before this has no higher numbers. If
-- Redis does not have the coupon, which is loaded from a later state of PostgreSQL then: 'missing'.
-- If the coupon is a placeholder (hold.lua), only the number is written: also 'missing'. If Redis
-- has another generation, or only revocations below `from`, nothing is written: 'behind'.
--
-- Errors: ERR couponmq: <the argument or key, and what is wrong with it>. On an error nothing is
-- written.

local HEAD = 3

keys_check(':codes')
codes_check(HEAD + 1)
integer_check(1, 'generation', 1)
local from, to = integer_check(2, 'from'), integer_check(3, 'to')
types_check('hash', 'hash')

local c = call('HMGET', KEYS[1], 'generation', 'seq', 'revocation', 'placeholder')
local generation, seq, known = integer(c[1], 1), integer(c[2]), integer(c[3] or '0')
if not c[1] and call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end
if not generation or not seq or not known then
	fail('coupon: its generation, seq or revocation is malformed')
end
if not c[4] and (known < from or c[1] ~= ARGV[1]) then
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
if to > known then
	call('HSET', KEYS[1], 'revocation', decimal(to))
end
if c[4] then
	return 'missing'
end
return {'ok', generation, seq}
