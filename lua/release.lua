-- Gives back what rejected receives of one coupon hold: each where its slot's record is exactly that receive, and else
-- nothing. So it may be run again at any time, also after the slot has another owner. All or nothing: every error comes
-- before the first write, and after the first write nothing can fail.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1..256 times five: user (positive 64-bit integer), slot (1..100), batch (ULID), index (0..255), what to do:
--         'free'                        PostgreSQL never issued it and counts nothing for it: slot free, stock + 1
--         'drop'                        PostgreSQL has no stock for it: slot free, stock as it is; the coupon's field
--                                       `lost` counts it, and `rebuild` is 1
--         'give SLOT:BATCH:INDEX:KEY'   the slot is this receive's in PostgreSQL: its record takes the place
--
-- stock + taken slots + reserved + lost = total, before and after. Only a rebuild, which counts anew from PostgreSQL,
-- takes `lost` away.
--
-- Returns {'missing'} if Redis does not have the coupon, or a rebuild is about to replace it, and nothing was written; or {'ok', stock, lost, ended...}: both as
-- they are now, and of each receive 'free', 'drop' or 'give' as it was done; 'other' if the slot is not that
-- receive's (any more); 'malformed' if the user's records are, and they were not touched.
--
-- Errors: ERR couponmq: <which argument, field or key, and what is wrong with it>. What Redis itself refuses (OOM,
-- READONLY, ...) is passed on unchanged.

local call, pcall, bad = redis.call, redis.pcall, redis.error_reply
local find, sub, match, format = string.find, string.sub, string.match, string.format

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers
local MAX_ID = '9223372036854775807'
local NOBODY = string.rep('0', 40) -- see hold.lua
local MAX_RECEIVES = 256
local EACH = 5

local function integer(text)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n <= MAX_INT and n or nil
end

-- The receive ('SLOT:BATCH:INDEX:') of a record, its slot and its key; nil if it is malformed.
local RECORD = '^(([1-9]%d?%d?):([0-7][0-9A-HJKMNP-TV-Z]*):(%d%d?%d?):)([ -~]*)$'
local function record_parse(line)
	local receive, slot, ulid, index, key = match(line, RECORD)
	if not receive or #ulid ~= 26 or #key > 64 or find(index, '^0.') or tonumber(slot) > 100
		or tonumber(index) >= MAX_RECEIVES then
		return nil
	end
	return receive, slot, key
end

-- Arguments

local base = KEYS[1] or ''
if #KEYS ~= 3 or not find(base, '^coupon:{[1-9]%d*}$')
	or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox' then
	return bad('ERR couponmq: KEYS: not the three keys of one coupon')
end
local count = #ARGV / EACH
if count < 1 or count > MAX_RECEIVES or count % 1 ~= 0 then
	return bad('ERR couponmq: ARGV: 1 to 256 receives of user, slot, batch, index and what to do are needed')
end

local users, receives, gifts = {}, {}, {}
for i = 1, count do
	local at = (i - 1) * EACH
	local user, slot, batch, index, what = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
	if not find(user, '^[1-9]%d*$') or #user > 18 and (#user > 19 or user > MAX_ID) then
		return bad('ERR couponmq: user: not a positive 64-bit integer in canonical decimal')
	end
	if find(slot .. batch .. index, ':', 1, true) then
		return bad('ERR couponmq: slot, batch, index: not of a receive')
	end
	local receive = record_parse(slot .. ':' .. batch .. ':' .. index .. ':')
	if not receive then
		return bad('ERR couponmq: slot, batch, index: not of a receive')
	end
	if sub(what, 1, 5) == 'give ' then
		local gift = sub(what, 6)
		local _, its_slot = record_parse(gift)
		if its_slot ~= slot then
			return bad('ERR couponmq: give: not a record of that slot')
		end
		gifts[i] = gift
	elseif what ~= 'free' and what ~= 'drop' then
		return bad('ERR couponmq: what: not free, drop or give')
	end
	users[i], receives[i] = user, receive
end

-- The coupon

for i = 1, 3 do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'none' and kind ~= 'hash' then
		return bad('ERR couponmq: ' .. KEYS[i] .. ': not a hash')
	end
end
local run_id = call('HGET', KEYS[1], 'run_id')
if run_id == NOBODY or not run_id and call('EXISTS', KEYS[1]) == 0 then
	return {'missing'}
end

local c = call('HMGET', KEYS[1], 'total', 'stock', 'reserved', 'lost')
local total, stock, reserved, lost = integer(c[1]), integer(c[2]), integer(c[3]), integer(c[4] or '0')
if not total or not stock or not reserved or not lost or stock + reserved + lost > total then
	return bad('ERR couponmq: coupon: its total, stock, reserved or lost is malformed')
end

-- The users: each one's records as a list of lines, false where they are malformed; `at` tells where a receive's is.

local function records_read(text)
	local lines, at, taken, from = {}, {}, {}, 1
	while from do
		local stop = find(text, '\n', from, true)
		local line = sub(text, from, (stop or 0) - 1)
		local receive, slot = record_parse(line)
		if not receive or taken[slot] then
			return false
		end
		taken[slot] = true
		lines[#lines + 1] = line
		at[receive] = #lines
		from = stop and stop + 1
	end
	return {lines = lines, at = at, left = #lines}
end

local known, changed = {}, {}
local stored = call('HMGET', KEYS[2], unpack(users))
for i = 1, count do
	if stored[i] and known[users[i]] == nil then
		known[users[i]] = records_read(stored[i])
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
			records.at[record_parse(gifts[i])] = place
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
	return bad('ERR couponmq: coupon: more is given back than total allows')
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
		hdel[#hdel + 1] = user -- issue.lua takes '' for malformed
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
	writes[#writes + 1] = {'HSET', KEYS[1], 'stock', format('%.0f', stock)}
end
if dropped > 0 then
	writes[#writes + 1] = {'HSET', KEYS[1], 'lost', format('%.0f', lost), 'rebuild', '1'}
end
for i, write in ipairs(writes) do
	local done = pcall(unpack(write))
	if i == 1 and type(done) == 'table' and done.err then
		return done
	end
end

return {'ok', stock, lost, unpack(ended)}
