-- Gives back what rejected receives of one coupon hold: each where its slot's record is exactly
-- that receive, and else nothing. So it may be run again at any time, also after the slot has
-- another owner. All or nothing: every error comes before the first write, and after the first
-- write nothing can fail.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1..256 times five: user (positive 64-bit integer), slot (1..100), batch (ULID), index
--       (0..255), what to do:
--         'free'  PostgreSQL never issued it and counts nothing for it: slot free, stock + 1
--         'drop'  PostgreSQL has no stock for it: slot free, stock as it is; the coupon's field
--                 `lost` counts it, and `rebuild` is 1
--         'give SLOT:BATCH:INDEX:KEY'
--                 the slot is this receive's in PostgreSQL: its record takes the place
--
-- stock + taken slots + reserved + lost = total, before and after. Only a rebuild, which counts
-- anew from PostgreSQL, takes `lost` away.
--
-- Returns {'missing'} if Redis does not have the coupon, or a rebuild is about to replace it, and
-- nothing was written; or {'ok', stock, lost, ended...}: both as they are now, and of each receive
-- 'free', 'drop' or 'give' as it was done; 'other' if the slot is not that receive's (any more);
-- 'malformed' if the user's records are, and they were not touched.
--
-- Errors: ERR couponmq: <which argument, field or key, and what is wrong with it>. What Redis
-- itself refuses (OOM, READONLY, ...) is passed on unchanged.

local EACH = 5

keys_check(':users', ':outbox')
local count = groups_count(0, EACH, MAX_INDEX + 1)
local users, receives, gifts = {}, {}, {}
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
	elseif what ~= 'free' and what ~= 'drop' then
		fail('what: not free, drop or give')
	end
end

-- The coupon

types_check('hash', 'hash', 'hash')
local run_id = call('HGET', KEYS[1], 'run_id')
if run_id == NOBODY or not run_id and call('EXISTS', KEYS[1]) == 0 then
	return {'missing'}
end

local c = call('HMGET', KEYS[1], 'total', 'stock', 'reserved', 'lost')
local total, stock, reserved = integer(c[1]), integer(c[2]), integer(c[3])
local lost = integer(c[4] or '0')
if not total or not stock or not reserved or not lost or stock + reserved + lost > total then
	fail('coupon: its total, stock, reserved or lost is malformed')
end

-- The users: each one's records as a list of lines, and which of them each receive has; false where
-- they are malformed

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
for i = 1, count do
	local records = known[users[i]]
	local place = records and records.at[receives[i]]
	if records == false then
		ended[i] = 'malformed'
	elseif not place then
		ended[i] = 'other'
	else
		records.at[receives[i]] = nil
		if gifts[i] then
			records.lines[place] = gifts[i]
			local receive = record_parse(gifts[i])
			records.at[receive] = place
			ended[i] = 'give'
		else
			records.lines[place] = false
			records.left = records.left - 1
			ended[i] = ARGV[i * EACH]
			if ended[i] == 'free' then
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

-- The writes. A script can be refused at its first one alone.

local writes, hset, hdel = {}, {'HSET', KEYS[2]}, {'HDEL', KEYS[2]}
for _, user in ipairs(changed) do
	local records, kept = known[user], {}
	for i = 1, #records.lines do
		if records.lines[i] then
			kept[#kept + 1] = records.lines[i]
		end
	end
	if #kept == 0 then
		hdel[#hdel + 1] = user -- to issue.lua '' is malformed
	else
		hset[#hset + 1] = user
		hset[#hset + 1] = table.concat(kept, '\n')
	end
end
if #hset > 2 then
	writes[#writes + 1] = hset
end
if #hdel > 2 then
	writes[#writes + 1] = hdel
end
if freed > 0 then
	writes[#writes + 1] = {'HSET', KEYS[1], 'stock', decimal(stock)}
end
if dropped > 0 then
	writes[#writes + 1] = {'HSET', KEYS[1], 'lost', decimal(lost), 'rebuild', '1'}
end
for i, write in ipairs(writes) do
	local done = pcall(unpack(write))
	if i == 1 and type(done) == 'table' and done.err then
		return done
	end
end

return {'ok', stock, lost, unpack(ended)}
