-- Puts a coupon into Redis under a new generation, at the end of a rebuild or when it is loaded for
-- the first time. The filled keys are renamed to those of the coupon, and the stock is computed.
--
--	in flight of an older generation = its highest known number - its settled receives
--	stock    = total - issued - in flight of all older generations
--	reserved = receives in flight whose slots are not in the users' hash
--
-- The highest known number is the maximum of those in PostgreSQL, in this Redis (including numbers
-- given out up to this call), and in the reports of gateways. If Redis had less than all of them,
-- it has lost data, and more reports may come: the time is recorded as `loss_at`.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:known
--       5 coupon:{ID}:seen  6 coupon:{ID}:codes  7 coupon:{ID}:fill:GENERATION:users
--       8 coupon:{ID}:fill:GENERATION:known  9 coupon:{ID}:fill:GENERATION:codes
-- ARGV  1 fence       NUMBER:FROM:UNTIL, see fence_check()
--       2 run_id      of this Redis process: 40 hexadecimal digits
--       3 generation  1..2^53-1, the new one
--       4 version     1..2^53-1, of the terms; newer terms in Redis are kept, unless more than
--                     their total is taken
--       5 status      open, paused or closed
--       6 total       0..2^53-1
--       7 begin       ms since the epoch, 0 = no bound
--       8 end         ms since the epoch, 0 = no bound
--       9 limit       1..100, coupons a user
--      10 issued      0..total, the number of rows in PostgreSQL, all of them filled
--      11 late        0..2^53-1, the number of the last late outcome included in these counts
--      12 revocation  0..2^53-1, the number of the last revocation whose codes are filled
--      then three for each row of older generations in PostgreSQL, at most 1000: the generation, or
--      0 for those that are folded; its highest number; and the number of its settled receives
--
-- Returns {'placed', stock, reserved, known, over}. known: receives in flight that have a slot;
-- over: receives in flight that exceed the stock. Otherwise nothing is written: 'fenced' if the
-- coupon has a higher fence or the keeper's lock may not be held any more, 'current' if it has this
-- generation or a later one, 'gone' if the filled keys have expired or the coupon is not held any
-- more (Redis was emptied), 'revoked' if codes were revoked meanwhile (revoke.lua).

local HEAD, EACH = 12, 3
local OLDER_MOST = 1000 -- their numbers are written in one command, and Lua's stack is bounded

if #ARGV < HEAD or #ARGV > HEAD + OLDER_MOST * EACH or (#ARGV - HEAD) % EACH ~= 0 then
	fail('ARGV: 12 arguments and then three for each of at most 1000 older generations are needed')
end
keys_check(':users', ':outbox', ':known', ':seen', ':codes', ':fill:' .. ARGV[3] .. ':users',
	':fill:' .. ARGV[3] .. ':known', ':fill:' .. ARGV[3] .. ':codes')
local fence, is_over = fence_check(1)
local run_id = run_id_check(2)
local generation, version = integer_check(3, 'generation', 1), integer_check(4, 'version', 1)
local status, total = status_check(5), integer_check(6, 'total')
integer_check(7, 'begin')
integer_check(8, 'end')
integer_check(9, 'limit', 1, 100)
local issued = integer_check(10, 'issued')
integer_check(11, 'late')
local revocation = integer_check(12, 'revocation')
local older = {}
for i = HEAD + 1, #ARGV, EACH do
	older[#older + 1] = {
		generation = integer_check(i, 'older generation'),
		seq = integer_check(i + 1, 'older seq'),
		settled = integer_check(i + 2, 'older settled'),
	}
end

-- Keys that are only replaced may have any type; keys that are read may not.
types_check('hash', false, 'hash', false, 'hash', false, 'hash', 'set', 'hash')
local c = call('HMGET', KEYS[1], 'fence', 'generation', 'seq', 'version', 'placeholder',
	'run_id', 'revocation')
local known_fence, old_generation, old_seq = integer(c[1]), integer(c[2]), integer(c[3])
if is_over or known_fence and known_fence > fence then
	return 'fenced'
end
if old_generation and old_generation >= generation and not c[5] then
	return 'current'
end
-- A revocation that finds no coupon leaves no trace. So one that began after the hold must find it.
if c[6] ~= RUN_ID_NONE or issued > 0 and call('EXISTS', KEYS[7]) == 0
	or revocation > 0 and call('EXISTS', KEYS[9]) == 0 then
	return 'gone'
end
if (integer(c[7] or '0') or 0) > revocation then
	return 'revoked'
end

local known = call('SCARD', KEYS[8])
local terms = {status, ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[4]}
if not c[5] and integer(c[4]) and integer(c[4]) > version then
	local newer = call('HMGET', KEYS[1], 'status', 'total', 'begin', 'end', 'limit', 'version')
	-- A total that was lowered while Redis did not have all taken slots may be too low to keep.
	-- A missing field must not end the script after the first write.
	if newer[1] and newer[3] and newer[4] and newer[5] and integer(newer[2])
		and integer(newer[2]) >= issued + known then
		terms, total = newer, integer(newer[2])
	end
end

-- In flight

local seen = {}
local reported = call('HGETALL', KEYS[5])
for i = 1, #reported, 2 do
	seen[reported[i]] = integer(reported[i + 1])
end

local in_flight, highs = 0, {}
local has_numbers = old_generation and old_seq and not c[5]
local is_loss = #older > 0 and not has_numbers
for _, one in ipairs(older) do
	local name = decimal(one.generation)
	local known_here = integer(call('HGET', KEYS[1], 'high:' .. name))
	local high = math.max(one.seq, one.settled, seen[name] or 0, known_here or 0)
	if has_numbers and one.generation == old_generation then
		is_loss = is_loss or high > old_seq
		high = math.max(high, old_seq)
	elseif has_numbers and one.generation > old_generation then
		is_loss = is_loss or high > 0
	end
	in_flight = in_flight + high - one.settled
	highs[#highs + 1] = 'high:' .. name
	highs[#highs + 1] = decimal(high)
end

local reserved = math.max(in_flight - known, 0)
local stock = total - issued - known - reserved
local over = 0
if stock < 0 then
	over = math.min(-stock, reserved)
	reserved, stock = reserved - over, 0
end

-- The writes. Redis refuses a script for lack of memory only at its first write, and never an
-- UNLINK. If nothing is replaced, the HSET is the first write.

if call('EXISTS', KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]) > 0 then
	call('UNLINK', KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6])
end
call('HSET', KEYS[1], 'status', terms[1], 'run_id', run_id, 'generation', ARGV[3], 'seq', '0',
	'total', terms[2], 'stock', decimal(stock), 'reserved', decimal(reserved),
	'begin', terms[3], 'end', terms[4], 'limit', terms[5], 'fence', decimal(fence),
	'version', terms[6], 'late', ARGV[11], 'revocation', ARGV[12], unpack(highs))
if is_loss then
	call('HSET', KEYS[1], 'loss_at', decimal(now_ms()))
end
call('PERSIST', KEYS[3]) -- it is kept, and has receives in flight
for filled, key in pairs({[KEYS[7]] = KEYS[2], [KEYS[8]] = KEYS[4], [KEYS[9]] = KEYS[6]}) do
	if call('EXISTS', filled) == 1 then
		call('RENAME', filled, key)
		call('PERSIST', key)
	end
end
return {'placed', stock, reserved, known, over}
