-- Lets the keys of a closed coupon expire, when nothing of it is in flight any more. The only place that does.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:known  5 coupon:{ID}:seen
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 generation  1..2^53-1, the one that PostgreSQL has settled
--       3 seq         0..2^53-1, the last receive number in it that PostgreSQL has settled
--       4 keep_ms     1..2^53-1, so long the keys stay
--
-- Returns 'expires'; otherwise nothing is written: 'missing'; 'fenced' if the coupon has a higher fence; 'busy' if it is not closed,
-- has another generation or number, reserves something, or has anything in its outbox or among the known receives.
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
if #KEYS ~= 5 or not find(base, '^coupon:{[1-9]%d*}$') or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox'
	or KEYS[4] ~= base .. ':known' or KEYS[5] ~= base .. ':seen' then
	return bad('ERR couponmq: KEYS: not the five keys of one coupon')
end
local fence, generation, seq = integer(ARGV[1], 0, MAX_INT), integer(ARGV[2], 1, MAX_INT), integer(ARGV[3], 0, MAX_INT)
if #ARGV ~= 4 or not fence or not generation or not seq or not integer(ARGV[4], 1, MAX_INT) then
	return bad('ERR couponmq: ARGV: fence, generation, seq and keep_ms are needed')
end

for i, wanted in ipairs({'hash', 'hash', 'hash', 'set', 'hash'}) do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= wanted then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a ' .. wanted)
	end
end
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'fence', 'status', 'generation', 'seq', 'reserved')
local known_fence = integer(c[1], 0, MAX_INT)
if not known_fence then
	return bad('ERR couponmq: coupon: its fence is malformed')
end
if known_fence > fence then
	return 'fenced'
end
if c[2] ~= 'closed' or integer(c[3], 1, MAX_INT) ~= generation or integer(c[4], 0, MAX_INT) ~= seq
	or integer(c[5], 0, MAX_INT) ~= 0 or call('EXISTS', KEYS[3], KEYS[4]) > 0 then
	return 'busy'
end

-- One moment for all of them: never a part of a coupon.
local time = call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[4]))
call('HSET', KEYS[1], 'fence', ARGV[1])
for i = 1, 5 do
	call('PEXPIREAT', KEYS[i], at)
end
return 'expires'
