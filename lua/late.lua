-- Counts what became of receives of older generations, which Redis holds as reserved: each once, in the order of their numbers.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:known  set of 'BATCH:INDEX': in flight, with a slot in users
-- ARGV  1..128 times nine, numbers dense and ascending: number, generation, seq (0: none), user, slot, batch (ULID), index,
--       key ('' = none), outcome:
--         'issued'  the slot is this receive's in PostgreSQL
--         'free'    rejected, PostgreSQL counts nothing for it
--         'drop'    rejected, PostgreSQL has no stock for it
--         'none'    only the number counts: a receive that no script can have given out
--
-- A receive that has its slot here was counted as taken: if it was rejected, release.lua gives the slot back. Of any other
-- one a reserved is counted down, and becomes its slot, or stock again. Where nothing is reserved or in stock for an issued one, more
-- was promised than there is: then the taken slots exceed the total, and `rebuild` is 1.
--
-- Returns 'missing' if Redis does not have the coupon, or a rebuild is about to replace it; 'gap' if numbers before these were never counted: only a rebuild
-- helps, and the coupon's field `rebuild` is 1; else {'ok', late, stock, reserved}, late being the last number counted.
--
-- Errors: ERR couponmq: <what is wrong>, and then nothing was written.

local call, bad = redis.call, redis.error_reply
local find, sub, match, format = string.find, string.sub, string.match, string.format

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers
local EACH = 9
local NOBODY = string.rep('0', 40) -- see hold.lua

local function integer(text)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n <= MAX_INT and n or nil
end

-- Arguments

local base = KEYS[1] or ''
if #KEYS ~= 3 or not find(base, '^coupon:{[1-9]%d*}$') or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':known' then
	return bad('ERR couponmq: KEYS: not a coupon, its users and its known')
end
local count = #ARGV / EACH
if count < 1 or count > 128 or count % 1 ~= 0 then
	return bad('ERR couponmq: ARGV: 1 to 128 outcomes of nine arguments are needed')
end
local users = {}
for i = 1, count do
	local at = (i - 1) * EACH
	local record = ARGV[at + 5] .. ':' .. ARGV[at + 6] .. ':' .. ARGV[at + 7] .. ':' .. ARGV[at + 8]
	local outcome = ARGV[at + 9]
	if not integer(ARGV[at + 1]) or not integer(ARGV[at + 2]) or not integer(ARGV[at + 3])
		or integer(ARGV[at + 1]) ~= integer(ARGV[1]) + i - 1 then
		return bad('ERR couponmq: number, generation, seq: not integers, or not dense')
	end
	if not find(ARGV[at + 4], '^[1-9]%d*$') or not find(record, '^[1-9]%d?%d?:[0-7][0-9A-HJKMNP-TV-Z]*:%d%d?%d?:[ -~]*$') then
		return bad('ERR couponmq: user, slot, batch, index or key: malformed')
	end
	if outcome ~= 'issued' and outcome ~= 'free' and outcome ~= 'drop' and outcome ~= 'none' then
		return bad('ERR couponmq: outcome: not issued, free, drop or none')
	end
	users[i] = ARGV[at + 4]
end

local KINDS = {'hash', 'hash', 'set'}
for i = 1, 3 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= KINDS[i] then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a ' .. KINDS[i])
	end
end
local c = call('HMGET', KEYS[1], 'generation', 'stock', 'reserved', 'lost', 'late', 'run_id')
if not c[1] or c[6] == NOBODY then
	return 'missing'
end
local generation, stock, reserved = integer(c[1]), integer(c[2]), integer(c[3])
local lost, late = integer(c[4] or '0'), integer(c[5] or '0')
if not generation or not stock or not reserved or not lost or not late then
	return bad('ERR couponmq: coupon: its generation, stock, reserved, lost or late is malformed')
end
if integer(ARGV[1]) > late + 1 then
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
		call('HSET', KEYS[1], field, format('%.0f', seq))
	end
end

-- A reserved one becomes something else; where none is reserved it was never counted. Whether it could be.
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

for i = 1, count do
	local at = (i - 1) * EACH
	local number, older, outcome = integer(ARGV[at + 1]), integer(ARGV[at + 2]), ARGV[at + 9]
	local receive = ARGV[at + 6] .. ':' .. ARGV[at + 7]
	if number > late then
		late = number
		if outcome ~= 'none' and older < generation and call('SREM', KEYS[3], receive) == 0 then
			high_raise(ARGV[at + 2], integer(ARGV[at + 3]))
			if outcome == 'issued' then
				local could = unit_take()
				local had = slot_give(users[i], ARGV[at + 5], ARGV[at + 5] .. ':' .. receive .. ':' .. ARGV[at + 8])
				-- Who had the slot will be rejected, and then finds it another's.
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
	end
end

call('HSET', KEYS[1], 'stock', format('%.0f', stock), 'reserved', format('%.0f', reserved), 'late', format('%.0f', late))
if lost > 0 or c[4] then
	call('HSET', KEYS[1], 'lost', format('%.0f', lost))
end
if rebuild then
	call('HSET', KEYS[1], 'rebuild', '1')
end
return {'ok', late, stock, reserved}
