-- Counts the outcomes of receives of older generations, which Redis counts as reserved: each once,
-- in the order of their numbers.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users
--       3 coupon:{ID}:known  set of 'BATCH:INDEX': in flight, with a slot in users
-- ARGV  1..128 times nine, numbers dense and ascending: number, generation, seq (0: none), user,
--       slot, batch (ULID), index, key ('' = none), outcome:
--         'issued'  the slot is this receive's in PostgreSQL
--         'free'    rejected, PostgreSQL counts nothing for it
--         'drop'    rejected, PostgreSQL has no stock for it
--         'none'    only the number counts: a receive that no script can have given out
--
-- A receive that has its slot here was counted as taken: if it was rejected, release.lua gives the
-- slot back. For any other one a reserved is counted down, and becomes its slot, or stock again.
-- Where nothing is reserved or in stock for an issued one, more was promised than there is: then
-- the taken slots exceed the total, and `rebuild` is 1.
--
-- Returns 'missing' if Redis does not have the coupon, or a rebuild is about to replace it; 'gap'
-- if numbers before these were never counted: only a rebuild helps, and the coupon's field
-- `rebuild` is 1; else {'ok', late, stock, reserved}, late being the last number counted.
--
-- Errors: ERR couponmq: <what is wrong>, and then nothing was written.

local EACH = 9

keys_check(':users', ':known')
local count = groups_count(0, EACH, 128)
local first, numbers = integer_check(1, 'number'), {}
for i = 1, count do
	local at = (i - 1) * EACH
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

types_check('hash', 'hash', 'set')
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', 'lost', 'late', 'run_id')
if not c[1] or c[6] == NOBODY then
	return 'missing'
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

-- One after the other

local rebuild = false

-- Of a generation more numbers are known now: what is between is in flight, and out of the stock.
local function high_raise(older, seq)
	local field = 'high:' .. older
	local high = integer(call('HGET', KEYS[1], field))
	if high and seq > high then
		local moved = math.min(seq - high, stock)
		stock, reserved = stock - moved, reserved + moved
		call('HSET', KEYS[1], field, decimal(seq))
	end
end

-- A reserved one becomes something else; where none is reserved it was never counted. Returns
-- whether there was one to take it from.
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

local function slot_give(user, slot, record)
	local text = call('HGET', KEYS[2], user)
	local lines, had = {}, false
	for line in string.gmatch((text or '') .. '\n', '([^\n]*)\n') do
		if sub(line, 1, #slot + 1) == slot .. ':' then
			had = true
		elseif line ~= '' then
			lines[#lines + 1] = line
		end
	end
	lines[#lines + 1] = record
	call('HSET', KEYS[2], user, table.concat(lines, '\n'))
	return had
end

-- What is not among the known receives; one of those was counted as taken.
local function outcome_count(older, seq, outcome, user, slot, rest)
	high_raise(older, seq)
	if outcome == 'issued' then
		local could = unit_take()
		local had = slot_give(user, slot, slot .. ':' .. rest)
		-- The receive that had the slot will be rejected, and then finds it another's.
		if had and could then
			stock = stock + 1
		end
		rebuild = rebuild or not could and not had
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
		unpack(ARGV, (i - 1) * EACH + 2, i * EACH)
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
return {'ok', late, stock, reserved}
