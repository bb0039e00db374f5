-- Notes for the keeper that a client asks for a coupon which waits to be verified or rebuilt: it is
-- done before the others.
--
-- KEYS  1 couponmq:asked  set: ids of coupons
-- ARGV  1 id              of the coupon, 1..2^63-1
--
-- Returns 1 if it is noted, 0 if there are too many. The set lives for 10 s after the last one; the
-- gateways ask again while clients do.

local MOST = 10000
local LIFE_MS = '10000'

if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
arguments_check(1, 1)
if not find(ARGV[1], '^[1-9]%d*$') or #ARGV[1] > #MAX_ID then
	fail('id: not the id of a coupon')
end
types_check('set')

if call('SCARD', KEYS[1]) >= MOST then
	return 0
end
call('SADD', KEYS[1], ARGV[1])
call('PEXPIRE', KEYS[1], LIFE_MS)
return 1
