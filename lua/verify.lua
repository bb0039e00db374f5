-- Lets a coupon be issued on this Redis process, for the keeper: if Redis knows at least what PostgreSQL has seen.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:seen
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 run_id      of this Redis process: 40 hexadecimal digits
--       3 generation  1..2^53-1, the current one in PostgreSQL
--       4 seq_seen    0..2^53-1, the highest PostgreSQL has seen in it
--       5 late        0..2^53-1, the last late outcome that PostgreSQL knows to be counted here
--
-- Returns 'verified', and run_id and fence are set; otherwise nothing is written: 'fenced' if the
-- coupon has a higher fence; 'missing'; 'behind' if the generation is another, seq is less than seq_seen or than what
-- gateways have told, or late outcomes that were counted are not any more.
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
if #KEYS ~= 4 or not find(base, '^coupon:{[1-9]%d*}$')
	or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox' or KEYS[4] ~= base .. ':seen' then
	return bad('ERR couponmq: KEYS: not the four keys of one coupon')
end

if #ARGV ~= 5 then
	return bad('ERR couponmq: ARGV: 5 arguments are needed')
end
local fence, run_id = integer(ARGV[1], 0, MAX_INT), ARGV[2]
local generation, seq_seen = integer(ARGV[3], 1, MAX_INT), integer(ARGV[4], 0, MAX_INT)
if not fence then
	return bad('ERR couponmq: fence: not an integer within 0..2^53-1')
end
if #run_id ~= 40 or find(run_id, '[^0-9a-f]') then
	return bad('ERR couponmq: run_id: not 40 hexadecimal digits')
end
if not generation then
	return bad('ERR couponmq: generation: not an integer within 1..2^53-1')
end
if not seq_seen then
	return bad('ERR couponmq: seq_seen: not an integer within 0..2^53-1')
end

local late_least = integer(ARGV[5], 0, MAX_INT)
if not late_least then
	return bad('ERR couponmq: late: not an integer within 0..2^53-1')
end

for i = 1, 4 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= 'hash' then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a hash')
	end
end
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end

local c = call('HMGET', KEYS[1], 'fence', 'generation', 'seq', 'late', 'placeholder')
local known_fence, known_generation = integer(c[1], 0, MAX_INT), integer(c[2], 1, MAX_INT)
local seq, late = integer(c[3], 0, MAX_INT), integer(c[4] or '0', 0, MAX_INT)
if not known_fence or not known_generation or not seq or not late then
	return bad('ERR couponmq: coupon: its fence, generation, seq or late is malformed')
end
if known_fence > fence then
	return 'fenced'
end
local told = integer(call('HGET', KEYS[4], ARGV[3]) or '0', 0, MAX_INT)
if c[5] or known_generation ~= generation or seq < seq_seen or late < late_least or not told or seq < told then
	return 'behind'
end

call('HSET', KEYS[1], 'run_id', run_id, 'fence', ARGV[1])
call('DEL', KEYS[4]) -- all of it is known
return 'verified'
