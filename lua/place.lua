-- The end of a rebuild: puts what was filled in place, under a new generation, and computes what may still be given out.
--
--	in flight of an older generation = the highest number known of it - what PostgreSQL has settled of it
--	stock    = total - issued - in flight of all
--	reserved = in flight whose slots are not in the users' hash
--
-- The highest number known is the highest of PostgreSQL's, of this Redis (also what was given out until this moment), and
-- of what gateways have told.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:known  5 coupon:{ID}:seen
--       6 coupon:{ID}:fill:GENERATION:users  7 coupon:{ID}:fill:GENERATION:known
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 run_id      of this Redis process: 40 hexadecimal digits
--       3 generation  1..2^53-1, the new one
--       4 version     1..2^53-1, of the terms; those in Redis stay if they are newer, unless more is taken than their total
--       5 status      open, paused or closed
--       6 total       0..2^53-1
--       7 begin       ms since the epoch, 0 = no bound
--       8 end         ms since the epoch, 0 = no bound
--       9 limit       1..100, coupons a user
--      10 issued      0..total, PostgreSQL's rows: all of them were filled
--      11 late        0..2^53-1, the number of the last late outcome that is counted in these
--      then 0..1000 times three: an older generation, its highest number known to PostgreSQL, what of it is settled
--
-- Returns {'placed', stock, reserved, known, over}: known slots of what is in flight, and how many more are in flight than there
-- was stock for; otherwise nothing is written: 'fenced' if the coupon has a higher fence, 'current' if it has this
-- generation or a later one, 'gone' if what was filled has vanished.
--
-- Errors: ERR couponmq: <what is wrong>, and then nothing was written.

local call, bad, find, format = redis.call, redis.error_reply, string.find, string.format

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers
local FIRST, EACH = 12, 3

local function integer(text)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n <= MAX_INT and n or nil
end

-- Arguments

local base = KEYS[1] or ''
local fill = base .. ':fill:' .. (ARGV[3] or '')
if #KEYS ~= 7 or not find(base, '^coupon:{[1-9]%d*}$') or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox'
	or KEYS[4] ~= base .. ':known' or KEYS[5] ~= base .. ':seen'
	or KEYS[6] ~= fill .. ':users' or KEYS[7] ~= fill .. ':known' then
	return bad('ERR couponmq: KEYS: not the seven keys of one rebuild')
end
if #ARGV < FIRST - 1 or (#ARGV - FIRST + 1) % EACH ~= 0 then
	return bad('ERR couponmq: ARGV: 11 arguments and then three for each older generation are needed')
end
local n = {}
for i = 1, #ARGV do
	n[i] = integer(ARGV[i])
	if not n[i] and i ~= 2 and i ~= 5 then
		return bad('ERR couponmq: argument ' .. i .. ': not an integer within 0..2^53-1')
	end
end
local fence, run_id, generation, version, status = n[1], ARGV[2], n[3], n[4], ARGV[5]
local total, issued, late = n[6], n[10], n[11]
if #run_id ~= 40 or find(run_id, '[^0-9a-f]') then
	return bad('ERR couponmq: run_id: not 40 hexadecimal digits')
end
if status ~= 'open' and status ~= 'paused' and status ~= 'closed' then
	return bad('ERR couponmq: status: not open, paused or closed')
end
if generation < 1 or version < 1 or n[9] < 1 or n[9] > 100 then
	return bad('ERR couponmq: generation, version or limit: out of range')
end

-- Redis, as it stands

local KINDS = {'hash', 'hash', 'hash', 'set', 'hash', 'hash', 'set'}
for i = 1, 7 do
	local kind = call('TYPE', KEYS[i]).ok
	-- What is replaced may be broken; what is read may not.
	if kind ~= 'none' and kind ~= KINDS[i] and i ~= 2 and i ~= 4 then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a ' .. KINDS[i])
	end
end
local c = call('HMGET', KEYS[1], 'fence', 'generation', 'seq', 'version', 'placeholder')
local known_fence, old_generation, old_seq = integer(c[1]), integer(c[2]), integer(c[3])
if known_fence and known_fence > fence then
	return 'fenced'
end
if old_generation and old_generation >= generation and not c[5] then
	return 'current'
end
if issued > 0 and call('EXISTS', KEYS[6]) == 0 then
	return 'gone'
end

local known = call('SCARD', KEYS[7])
local terms = {status, ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[4]}
if not c[5] and integer(c[4]) and integer(c[4]) > version then
	local newer = call('HMGET', KEYS[1], 'status', 'total', 'begin', 'end', 'limit', 'version')
	-- A total that was lowered when Redis did not know what is taken cannot be kept.
	if integer(newer[2]) and integer(newer[2]) >= issued + known then
		terms, total = newer, integer(newer[2])
	end
end

-- In flight

local seen = {}
local told = call('HGETALL', KEYS[5])
for i = 1, #told, 2 do
	seen[told[i]] = integer(told[i + 1])
end

local in_flight, highs = 0, {}
for i = FIRST, #ARGV, EACH do
	local older = ARGV[i]
	local high = math.max(n[i + 1], n[i + 2], seen[older] or 0, integer(call('HGET', KEYS[1], 'high:' .. older)) or 0)
	if n[i] == old_generation and old_seq and not c[5] then
		high = math.max(high, old_seq)
	end
	in_flight = in_flight + high - n[i + 2]
	highs[#highs + 1] = 'high:' .. older
	highs[#highs + 1] = format('%.0f', high)
end

local reserved = math.max(in_flight - known, 0)
local stock = total - issued - known - reserved
local over = 0
if stock < 0 then
	over = math.min(-stock, reserved)
	reserved, stock = reserved - over, 0
end

-- The writes. DEL and UNLINK need no memory; the first that may be refused for want of it is the only one that matters.

call('UNLINK', KEYS[1], KEYS[2], KEYS[4], KEYS[5])
call('HSET', KEYS[1], 'status', terms[1], 'run_id', run_id, 'generation', ARGV[3], 'seq', '0', 'total', terms[2],
	'stock', format('%.0f', stock), 'reserved', format('%.0f', reserved), 'begin', terms[3], 'end', terms[4],
	'limit', terms[5], 'fence', ARGV[1], 'version', terms[6], 'late', ARGV[11], unpack(highs))
if call('EXISTS', KEYS[6]) == 1 then
	call('RENAME', KEYS[6], KEYS[2])
	call('PERSIST', KEYS[2])
end
if known > 0 then
	call('RENAME', KEYS[7], KEYS[4])
	call('PERSIST', KEYS[4])
end
return {'placed', stock, reserved, known, over}
