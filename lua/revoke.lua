-- Marks codes of a coupon as revoked, so that nobody redeems them any more.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:codes
-- ARGV  1..1024 codes: 'SET.SERIAL', or 'SET' for all of a set that are not redeemed
--
-- Returns 'missing' if Redis does not have the coupon; then nothing is written: loading the coupon
-- reads what PostgreSQL has revoked. Otherwise returns {'ok', USER...}: for each code the user who
-- has redeemed it, '' if it is revoked now.
--
-- Errors: ERR couponmq: <the argument or key, and what is wrong with it>. On an error nothing is
-- written.

keys_check(':codes')
arguments_check(1, 1024)
for _, code in ipairs(ARGV) do
	if not code_is_valid(code) then
		fail('code: not SET.SERIAL or SET')
	end
end
types_check('hash', 'hash')
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local owners = call('HMGET', KEYS[2], unpack(ARGV))
local hset, ended = {'HSET', KEYS[2]}, {'ok'}
local has_set = false
for i, code in ipairs(ARGV) do
	ended[i + 1] = owners[i] or ''
	if not owners[i] then
		hset[#hset + 1] = code
		hset[#hset + 1] = ''
		has_set = has_set or not find(code, '.', 1, true)
	end
end
if has_set then
	hset[#hset + 1] = SETS_REVOKED
	hset[#hset + 1] = ''
end
if #hset > 2 then
	local done = pcall(unpack(hset))
	if type(done) == 'table' then
		return done
	end
end
-- With the other keys of a settled coupon.
local left_ms = call('PTTL', KEYS[1])
if left_ms > 0 then
	call('PEXPIRE', KEYS[2], left_ms)
end
return ended
