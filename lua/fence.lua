-- Raises the fence of a coupon, for a keeper that was just elected: from here on no keeper before it writes to this coupon.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 fence  0..2^53-1, the keeper's
--
-- Returns 'raised'; otherwise nothing is written: 'current' if the coupon has this fence; 'fenced' if it has a higher one; 'missing'.
--
-- Errors: ERR couponmq: <which argument, field or key, and what is wrong with it>, and then nothing was written.

local call, bad, find = redis.call, redis.error_reply, string.find

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers

-- The number if the text is an integer within least..most in canonical decimal, else nil.
local function integer(text, least, most)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n >= least and n <= most and n or nil
end

local base = KEYS[1] or ''
if #KEYS ~= 3 or not find(base, '^coupon:{[1-9]%d*}$')
	or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox' then
	return bad('ERR couponmq: KEYS: not the three keys of one coupon')
end

local fence = integer(ARGV[1], 0, MAX_INT)
if #ARGV ~= 1 or not fence then
	return bad('ERR couponmq: fence: not an integer within 0..2^53-1')
end

local kind = call('TYPE', KEYS[1]).ok
if kind == 'none' then
	return 'missing'
end
if kind ~= 'hash' then
	return bad('ERR couponmq: ' .. KEYS[1] .. ': not a hash')
end
local known = integer(call('HGET', KEYS[1], 'fence'), 0, MAX_INT)
if not known then
	return bad('ERR couponmq: coupon: its fence is malformed')
end
if known >= fence then
	return known > fence and 'fenced' or 'current'
end
call('HSET', KEYS[1], 'fence', ARGV[1])
return 'raised'
