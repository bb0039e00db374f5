-- A gateway tells the highest number it has ever seen of one generation of a coupon, where Redis may have forgotten it.
-- What is told of an older generation than the coupon's is in flight: it is taken out of the stock at once.
--
-- KEYS  1 coupon:{ID}       hash
--       2 coupon:{ID}:seen  hash: generation -> the highest number that gateways have told
-- ARGV  1 generation  1..2^53-1
--       2 seq         1..2^53-1
--
-- Returns 1 if this was news, else 0. Errors: ERR couponmq: <what is wrong>, and then nothing was written.

local call, bad, find, format = redis.call, redis.error_reply, string.find, string.format

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers
local ALONE_MS = '86400000' -- how long what was told of a coupon lasts that Redis does not have

local function integer(text)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n <= MAX_INT and n or nil
end

local base = KEYS[1] or ''
if #KEYS ~= 2 or not find(base, '^coupon:{[1-9]%d*}$') or KEYS[2] ~= base .. ':seen' then
	return bad('ERR couponmq: KEYS: not a coupon and what was seen of it')
end
local generation, seq = integer(ARGV[1]), integer(ARGV[2])
if #ARGV ~= 2 or not generation or not seq or generation < 1 or seq < 1 then
	return bad('ERR couponmq: generation, seq: not within 1..2^53-1')
end
for i = 1, 2 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= 'hash' then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a hash')
	end
end

local high = 'high:' .. ARGV[1]
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', high)
local current = integer(c[1])

if current and current > generation then
	local stock, reserved, known = integer(c[2]), integer(c[3]), integer(c[4])
	if not stock or not reserved then
		return bad('ERR couponmq: coupon: its stock or reserved is malformed')
	end
	if not known or known >= seq then
		return 0
	end
	local moved = math.min(seq - known, stock)
	call('HSET', KEYS[1], high, ARGV[2], 'stock', format('%.0f', stock - moved),
		'reserved', format('%.0f', reserved + moved))
	return 1
end

local told = integer(call('HGET', KEYS[2], ARGV[1]))
if told and told >= seq then
	return 0
end
call('HSET', KEYS[2], ARGV[1], ARGV[2])
-- It lasts as long as the coupon. Where there is none a keeper that still needs it reads it soon; of a campaign that is over
-- nobody does.
local expires = call('PEXPIRETIME', KEYS[1])
if expires > 0 then
	call('PEXPIREAT', KEYS[2], format('%.0f', expires))
elseif not current then
	call('PEXPIRE', KEYS[2], ALONE_MS)
end
return 1
