-- Frees the slots of rejected receives of one coupon. A slot is changed only if its record is
-- exactly that receive, so the script may be repeated at any time, even after the slot has another
-- owner. The script is atomic: every error occurs before the first write, and no later write can
-- fail.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox  4 coupon:{ID}:rejected
--       5 coupon:{ID}:codes
-- ARGV  1..256 times five: user (1..64 bytes), slot (1..100), batch (ULID), index
--       (0..255), what to do:
--         'free'  the slot is freed and its unit goes back to the stock
--         'drop'  the slot is freed, but PostgreSQL has no stock for its unit: the stock is
--                 unchanged, the coupon's field `lost` is incremented, and `rebuild` is set to 1
--         'void'  as free, of a receive that was issued. The list of rejected receives gets it,
--                 whatever the slot has, so that it stays voided should PostgreSQL be put back
--                 If the coupon's field `displaced` is set, the slot is not freed, and `rebuild`
--                 is set to 1
--         'keep'  it was voided as well, but its slot and its unit stay taken: the list alone
--         'give SLOT:BATCH:INDEX:KEY', perhaps with a tab and a code
--                 in PostgreSQL this other receive has the slot: its record replaces the
--                 rejected one
--
-- With its record a receive loses its code, unless another one of the user has the code as well or
-- another user has claimed it. The receive that is given the slot gets its code.
--
-- `displaced`: an issued receive has taken its slot or its code from one in flight, here or in
-- late.lua, and Redis has forgotten that one. When the issued receive is voided, PostgreSQL issues
-- the other one. Only a rebuild knows it: until then its slot, unit and code are not given out.
--
-- stock + taken slots + reserved + lost = total, before and after. A rebuild, which counts from
-- PostgreSQL, clears `lost`.
--
-- Returns {'missing'} if Redis does not have the coupon or it is held for a rebuild; then nothing
-- is written. Otherwise returns {'ok', stock, lost, result...}: stock and lost as they are after
-- the call, and for each receive 'free', 'drop', 'void', 'keep' or 'give' as it was done, 'rebuild'
-- if a rebuild will free the slot, 'other' if the slot does not have that receive, or 'malformed'
-- if the user's records are malformed; they are not changed.

local EACH = 5

keys_check(':users', ':outbox', ':rejected', ':codes')
local count = groups_count(0, EACH, MAX_INDEX + 1)
local users, receives, gifts = {}, {}, {}
local listed = {'RPUSH', KEYS[4]} -- the voided ones
for i = 1, count do
	local user, slot, batch, index, what = unpack(ARGV, (i - 1) * EACH + 1, i * EACH)
	users[i] = user_check(user)
	receives[i] = record_parse(slot .. ':' .. batch .. ':' .. index .. ':')
	if not receives[i] or find(slot .. batch .. index, ':', 1, true) then
		fail('slot, batch, index: not of a receive')
	end
	if sub(what, 1, 5) == 'give ' then
		local _, slot_given = record_parse(sub(what, 6))
		if slot_given ~= tonumber(slot) then
			fail('give: not a record of that slot')
		end
		gifts[i] = sub(what, 6)
	elseif what == 'void' or what == 'keep' then
		listed[#listed + 1] = batch .. ':' .. index .. ':' .. slot
			.. (what == 'void' and ':voided:' or ':void_kept:') .. user
	elseif what ~= 'free' and what ~= 'drop' then
		fail('what: not free, drop, void, keep or give')
	end
end

-- The coupon

types_check('hash', 'hash', 'hash', 'list', 'hash')
local run_id = call('HGET', KEYS[1], 'run_id')
if run_id == RUN_ID_NONE or not run_id and call('EXISTS', KEYS[1]) == 0 then
	return {'missing'}
end

local c = call('HMGET', KEYS[1], 'total', 'stock', 'reserved', 'lost', 'displaced')
local total, stock, reserved = integer(c[1]), integer(c[2]), integer(c[3])
local lost, displaced, rebuild = integer(c[4] or '0'), c[5] == '1', false
if not total or not stock or not reserved or not lost or stock + reserved + lost > total then
	fail('coupon: its total, stock, reserved or lost is malformed')
end

-- The users: the records of each as a list of lines, and the line of each receive; false if they
-- are malformed

local function user_read(text)
	local lines, at = {}, {}
	local taken = records_read(text, nil, lines)
	if not taken then
		return false
	end
	for i, line in ipairs(lines) do
		at[taken[tonumber(match(line, '^%d+'))]] = i
	end
	return {lines = lines, at = at, left = #lines}
end

local known, changed = {}, {}
local stored = call('HMGET', KEYS[2], unpack(users))
for i = 1, count do
	if stored[i] and known[users[i]] == nil then
		known[users[i]] = user_read(stored[i])
	end
end

local ended, freed, dropped = {}, 0, 0
local losers = {} -- code -> the user whose record of it goes
local given = {} -- user, receive and code of each record that replaces one
for i = 1, count do
	local records = known[users[i]]
	local place = records and records.at[receives[i]]
	if records == false then
		ended[i] = 'malformed'
	elseif not place then
		ended[i] = 'other'
	elseif ARGV[i * EACH] == 'keep' then
		ended[i] = 'keep'
	elseif ARGV[i * EACH] == 'void' and displaced then
		ended[i], rebuild = 'rebuild', true
	else
		records.at[receives[i]] = nil
		local code = code_of(records.lines[place])
		if code then
			losers[code] = users[i]
		end
		if gifts[i] then
			-- It may have been voided.
			rebuild = rebuild or displaced and code ~= nil
			records.lines[place] = gifts[i]
			local receive = record_parse(gifts[i])
			records.at[receive] = place
			given[#given + 1] = {users[i], receive, code_of(gifts[i])}
			ended[i] = 'give'
		else
			records.lines[place] = false
			records.left = records.left - 1
			ended[i] = ARGV[i * EACH]
			if ended[i] == 'free' or ended[i] == 'void' then
				freed = freed + 1
			else
				dropped = dropped + 1
			end
		end
		if not records.changed then
			records.changed = true
			changed[#changed + 1] = users[i]
		end
	end
end

stock, lost = stock + freed, lost + dropped
if stock + reserved + lost > total then
	fail('coupon: more is given back than total allows')
end

-- The writes. Redis can refuse only the first one. At most 256 receives change, so each command has
-- at most two arguments for each of these: Lua's stack has room for some 8,000.

local writes, hset, hdel = {}, {'HSET', KEYS[2]}, {'HDEL', KEYS[2]}
local claimed, unused = {'HSET', KEYS[5]}, {'HDEL', KEYS[5]}
for _, user in ipairs(changed) do
	local records, kept = known[user], {}
	for i = 1, #records.lines do
		if records.lines[i] then
			kept[#kept + 1] = records.lines[i]
			local code = code_of(records.lines[i])
			if code then
				losers[code] = nil
			end
		end
	end
	if #kept == 0 then
		hdel[#hdel + 1] = user -- issue.lua treats '' as malformed
	else
		hset[#hset + 1] = user
		hset[#hset + 1] = table.concat(kept, '\n')
	end
end
-- Unless the slot was given back in this call. The codes of the other records stay as they are: of
-- one that another user has by now, PostgreSQL rejects this user's receive.
for _, gift in ipairs(given) do
	local user, receive, code = gift[1], gift[2], gift[3]
	if code and known[user].at[receive] then
		local there = call('HGET', KEYS[5], code)
		losers[code] = nil
		claimed[#claimed + 1] = code
		claimed[#claimed + 1] = code_claimed(there, user)
		displaced = displaced or code_is_of_another(there, user)
	end
end
for code, user in pairs(losers) do
	local left = code_freed(call('HGET', KEYS[5], code), user)
	if left then
		claimed[#claimed + 1] = code
		claimed[#claimed + 1] = left
	elseif left == false then
		unused[#unused + 1] = code
	end
end
for _, write in ipairs({hset, hdel, claimed, unused, listed}) do
	if #write > 2 then
		writes[#writes + 1] = write
	end
end
if freed > 0 then
	writes[#writes + 1] = {'HSET', KEYS[1], 'stock', decimal(stock)}
end
if dropped > 0 then
	writes[#writes + 1] = {'HSET', KEYS[1], 'lost', decimal(lost)}
end
if dropped > 0 or rebuild then
	writes[#writes + 1] = {'HSET', KEYS[1], 'rebuild', '1'}
end
if displaced and not c[5] then
	writes[#writes + 1] = {'HSET', KEYS[1], 'displaced', '1'}
end
-- With the other keys of a settled coupon, should this write make the list.
local left_ms = call('PTTL', KEYS[1])
if #listed > 2 and left_ms > 0 then
	writes[#writes + 1] = {'PEXPIRE', KEYS[4], left_ms}
end
for i, write in ipairs(writes) do
	local done = pcall(unpack(write))
	if i == 1 and type(done) == 'table' and done.err then
		return done
	end
end

return {'ok', stock, lost, unpack(ended)}
