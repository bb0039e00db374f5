-- Gives a coupon newer terms, for the keeper and couponctl. What is taken stays taken: the stock moves
-- with the total, and when there is none left, what is lost (see release.lua).
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 version  1..2^53-1, of these terms
--       2 status   open, paused or closed
--       3 total    0..2^53-1
--       4 begin    ms since the epoch, 0 = no bound
--       5 end      ms since the epoch, 0 = no bound
--       6 limit    1..100, coupons a user
--       7 fence    0..2^53-1, the keeper's; couponctl, which locks the coupon in PostgreSQL meanwhile, gives none
--
-- Returns 'applied'; otherwise nothing is written: 'fenced' if the coupon has a higher fence; 'missing'; 'current' if the
-- coupon has this version or a later one; {'taken', n} if total is less than the n that are taken (slots and reserved).
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

if #ARGV ~= 6 and #ARGV ~= 7 then
	return bad('ERR couponmq: ARGV: 6 or 7 arguments are needed')
end
local version, status, total = integer(ARGV[1], 1, MAX_INT), ARGV[2], integer(ARGV[3], 0, MAX_INT)
if not version then
	return bad('ERR couponmq: version: not an integer within 1..2^53-1')
end
if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then
	return bad('ERR couponmq: status: not open, paused or closed')
end
if not total then
	return bad('ERR couponmq: total: not an integer within 0..2^53-1')
end
if not integer(ARGV[4], 0, MAX_INT) or not integer(ARGV[5], 0, MAX_INT) then
	return bad('ERR couponmq: begin, end: not an integer within 0..2^53-1')
end
if not integer(ARGV[6], 1, 100) then
	return bad('ERR couponmq: limit: not an integer within 1..100')
end
local fence = integer(ARGV[7] or '0', 0, MAX_INT)
if not fence then
	return bad('ERR couponmq: fence: not an integer within 0..2^53-1')
end

for i = 1, 3 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= 'hash' then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a hash')
	end
end
if call('HEXISTS', KEYS[1], 'placeholder') == 1 or call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'version', 'total', 'stock', 'lost', 'fence')
local known = integer(c[1], 1, MAX_INT)
local total_old, stock_old = integer(c[2], 0, MAX_INT), integer(c[3], 0, MAX_INT)
local lost_old = integer(c[4] or '0', 0, MAX_INT)
if not known or not total_old or not stock_old or not lost_old or stock_old + lost_old > total_old then
	return bad('ERR couponmq: coupon: its version, total, stock or lost is malformed')
end
if ARGV[7] then
	local known_fence = integer(c[5], 0, MAX_INT)
	if not known_fence then
		return bad('ERR couponmq: coupon: its fence is malformed')
	end
	if known_fence > fence then
		return 'fenced'
	end
end
if known >= version then
	return 'current'
end
local taken = total_old - stock_old - lost_old
if total < taken then
	return {'taken', taken}
end

call('HSET', KEYS[1], 'version', ARGV[1], 'status', status, 'total', ARGV[3],
	'stock', string.format('%.0f', math.max(total - taken - lost_old, 0)), 'begin', ARGV[4], 'end', ARGV[5],
	'limit', ARGV[6])
if total - taken == 0 then
	call('HDEL', KEYS[1], 'lost', 'rebuild')
elseif total - taken < lost_old then
	call('HSET', KEYS[1], 'lost', string.format('%.0f', total - taken))
end
return 'applied'
