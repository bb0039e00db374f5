-- Counts the outcomes of receives of older generations, which Redis counts as reserved. Each
-- outcome is counted once, in the order of the outcomes' numbers.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users
--       3 coupon:{ID}:known  set of 'BATCH:INDEX': receives in flight that have a slot in users
--       4 coupon:{ID}:codes
-- ARGV  1 fence  NUMBER:FROM:UNTIL, see fence_check()
--       then 1..128 times nine, with consecutive numbers: number, generation, seq (0: none), user,
--       slot, batch (ULID), index, key ('' = none; then perhaps a tab and
--       a code), outcome:
--         'issued'  the slot is this receive's in PostgreSQL
--         'free'    rejected; its unit goes back to the stock
--         'drop'    rejected; PostgreSQL has no stock for its unit
--         'none'    only the number is recorded: no script can have accepted this receive
--
-- A known receive is counted as a taken slot; if it was rejected, slot_free.lua frees the slot. Any
-- other receive is counted in `reserved`: its unit becomes its slot, stock, or lost. If there is no
-- unit left for an issued receive, the taken slots exceed the total, and `rebuild` is set to 1.
--
-- An issued receive takes its slot and its code from whoever has them: that receive is in flight,
-- and will be rejected, unless this one is voided before. Redis forgets it, so the coupon's field
-- `displaced` is set to 1: see slot_free.lua.
--
-- Returns 'fenced'; 'missing' if Redis does not have the coupon or it is held for a rebuild; 'gap'
-- if earlier numbers were never counted: a rebuild is needed, and the coupon's field `rebuild` is
-- set to 1; otherwise {'ok', late, stock, reserved}, where late is the last number counted.

local HEAD, EACH = 1, 9

keys_check(':users', ':known', ':codes')
local count = groups_count(HEAD, EACH, 128)
local fence, is_over = fence_check(1)
local first, numbers = integer_check(HEAD + 1, 'number'), {}
for i = 1, count do
	local at = HEAD + (i - 1) * EACH
	local user, slot, batch, index, key, outcome = unpack(ARGV, at + 4, at + EACH)
	numbers[i] = {
		number = integer_check(at + 1, 'number', first + i - 1, first + i - 1),
		generation = integer_check(at + 2, 'generation'),
		seq = integer_check(at + 3, 'seq'),
	}
	user_check(user)
	if not find(slot .. ':' .. batch .. ':' .. index .. ':' .. key, RECORD_SHAPE) then
		fail('slot, batch, index or key: malformed')
	end
	if not ({issued = true, free = true, drop = true, none = true})[outcome] then
		fail('outcome: not issued, free, drop or none')
	end
end

types_check('hash', 'hash', 'set', 'hash')
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', 'lost', 'late', 'run_id',
	'fence', 'displaced')
if not c[1] or c[6] == RUN_ID_NONE then
	return 'missing'
end
if is_over or is_fenced(c[7], fence) then
	return 'fenced'
end
local generation, stock, reserved = integer(c[1]), integer(c[2]), integer(c[3])
local lost, late = integer(c[4] or '0'), integer(c[5] or '0')
if not generation or not stock or not reserved or not lost or not late then
	fail('coupon: its generation, stock, reserved, lost or late is malformed')
end
if first > late + 1 then
	call('HSET', KEYS[1], 'rebuild', '1')
	return 'gap'
end

-- The outcomes, in the order of their numbers

local rebuild, displaced = false, c[8] == '1'

-- Raises the highest known number of an older generation. The receives up to it are in flight:
-- their units move from the stock to reserved.
local function high_raise(older, seq)
	local field = 'high:' .. older
	local high = integer(call('HGET', KEYS[1], field))
	if high and seq > high then
		local moved = math.min(seq - high, stock)
		stock, reserved = stock - moved, reserved + moved
		call('HSET', KEYS[1], field, decimal(seq))
	end
end

-- Takes one unit from reserved or, if there is none, from the stock, then from lost. Returns
-- whether there was one.
local function unit_take()
	if reserved > 0 then
		reserved = reserved - 1
	elseif stock > 0 then
		stock = stock - 1
	elseif lost > 0 then
		lost = lost - 1
	else
		return false
	end
	return true
end

-- The code of a record that is replaced. Its receive may have been voided meanwhile: then one that
-- it has displaced has the code.
local function code_lose(code, user)
	local freed = code_freed(call('HGET', KEYS[4], code), user)
	if freed then
		call('HSET', KEYS[4], code, freed)
	elseif freed == false then
		call('HDEL', KEYS[4], code)
	end
	rebuild = rebuild or displaced
end

-- Returns whether another record had the slot.
local function slot_give(user, slot, record)
	local text = call('HGET', KEYS[2], user)
	local lines, had, left = {}, nil, nil
	for line in string.gmatch((text or '') .. '\n', '([^\n]*)\n') do
		if sub(line, 1, #slot + 1) == slot .. ':' then
			had, left = line, code_of(line)
		elseif line ~= '' then
			lines[#lines + 1] = line
		end
	end
	lines[#lines + 1] = record
	call('HSET', KEYS[2], user, table.concat(lines, '\n'))
	for _, line in ipairs(lines) do
		if left and code_of(line) == left then
			left = nil -- another record has it as well
		end
	end
	if left then
		code_lose(left, user)
	end
	local code = code_of(record)
	local there = code and call('HGET', KEYS[4], code)
	if code then
		call('HSET', KEYS[4], code, code_claimed(there, user))
	end
	displaced = displaced or code_is_of_another(there, user) or had and had ~= record or false
	return had ~= nil
end

-- Counts the outcome of a receive that is not among the known ones.
local function outcome_count(older, seq, outcome, user, slot, rest)
	high_raise(older, seq)
	if outcome == 'issued' then
		local took = unit_take()
		local had = slot_give(user, slot, slot .. ':' .. rest)
		-- The receive that had the slot will be rejected; freeing it changes nothing.
		if had and took then
			stock = stock + 1
		end
		rebuild = rebuild or not took and not had
	elseif reserved > 0 then
		reserved = reserved - 1
		if outcome == 'free' then
			stock = stock + 1
		else
			lost, rebuild = lost + 1, true
		end
	end
end

for i, one in ipairs(numbers) do
	local older, _, user, slot, batch, index, key, outcome =
		unpack(ARGV, HEAD + (i - 1) * EACH + 2, HEAD + i * EACH)
	local receive = batch .. ':' .. index
	if one.number > late then
		late = one.number
		if outcome ~= 'none' and one.generation < generation
			and call('SREM', KEYS[3], receive) == 0 then
			outcome_count(older, one.seq, outcome, user, slot, receive .. ':' .. key)
		end
	end
end

call('HSET', KEYS[1], 'stock', decimal(stock), 'reserved', decimal(reserved), 'late', decimal(late))
if lost > 0 or c[4] then
	call('HSET', KEYS[1], 'lost', decimal(lost))
end
if rebuild then
	call('HSET', KEYS[1], 'rebuild', '1')
end
if displaced and not c[8] then
	call('HSET', KEYS[1], 'displaced', '1')
end
return {'ok', late, stock, reserved}
