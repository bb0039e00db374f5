-- Puts a coupon into Redis, for the keeper: with these terms and counts, and no number given out yet.
-- Changes nothing if the coupon is there.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 run_id      of the Redis process it is verified on: 40 hexadecimal digits
--       3 generation  1..2^53-1
--       4 version     1..2^53-1, of the terms
--       5 status      open, paused or closed
--       6 total       0..2^53-1, and stock + reserved at most total
--       7 stock       0..2^53-1
--       8 reserved    0..2^53-1
--       9 begin       ms since the epoch, 0 = no bound
--      10 end         ms since the epoch, 0 = no bound
--      11 limit       1..100, coupons a user
--      12 late        0..2^53-1, the last late outcome that is counted in these
--
-- Returns 'loaded'; 'exists' if the coupon is there; 'fenced' if it is there with a higher fence. The
-- users' and the outbox's hashes may exist: the counts were computed with what they hold.
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
local run_id, status = ARGV[2], ARGV[5]
if #ARGV ~= 12 then
	return bad('ERR couponmq: ARGV: 12 arguments are needed')
end
if not fence then
	return bad('ERR couponmq: fence: not an integer within 0..2^53-1')
end
if #run_id ~= 40 or find(run_id, '[^0-9a-f]') then
	return bad('ERR couponmq: run_id: not 40 hexadecimal digits')
end
if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then
	return bad('ERR couponmq: status: not open, paused or closed')
end

-- Name, least and most of ARGV 3..12; status has been checked.
local numbers = {
	{'generation', 1, MAX_INT}, {'version', 1, MAX_INT}, false,
	{'total', 0, MAX_INT}, {'stock', 0, MAX_INT}, {'reserved', 0, MAX_INT},
	{'begin', 0, MAX_INT}, {'end', 0, MAX_INT}, {'limit', 1, 100}, {'late', 0, MAX_INT},
}
for i, number in ipairs(numbers) do
	if number and not integer(ARGV[i + 2], number[2], number[3]) then
		return bad('ERR couponmq: ' .. number[1] .. ': not an integer in its range')
	end
end
if tonumber(ARGV[7]) + tonumber(ARGV[8]) > tonumber(ARGV[6]) then
	return bad('ERR couponmq: stock: with reserved more than total')
end

for i = 1, 3 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= 'hash' then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a hash')
	end
end

if call('EXISTS', KEYS[1]) == 1 then
	local known = integer(call('HGET', KEYS[1], 'fence'), 0, MAX_INT)
	if not known then
		return bad('ERR couponmq: coupon: its fence is malformed')
	end
	return known > fence and 'fenced' or 'exists'
end

call('HSET', KEYS[1], 'status', status, 'run_id', run_id, 'generation', ARGV[3], 'seq', '0', 'total', ARGV[6],
	'stock', ARGV[7], 'reserved', ARGV[8], 'begin', ARGV[9], 'end', ARGV[10], 'limit', ARGV[11],
	'fence', ARGV[1], 'version', ARGV[4], 'late', ARGV[12])
return 'loaded'
