-- Writes one piece of a rebuild: adds taken slots to a users' hash under a temporary name.
--
-- KEYS  1 coupon:{ID}:fill:GENERATION:users  hash, as coupon:{ID}:users
--       2 coupon:{ID}:fill:GENERATION:known  set, as coupon:{ID}:known
--       3 coupon:{ID}:fill:GENERATION:codes  hash, as coupon:{ID}:codes
-- ARGV  1 fence NUMBER:FROM:UNTIL, see fence_check()
--       2 what  'issued': rows of PostgreSQL
--               'single': the same, for a coupon with limit 1: each user occurs once, so existing
--               records are not read
--               'flight': receives in flight. One whose slot and code are free takes them and is
--               added to the set; any other is already issued, or will be rejected. A revoked
--               code is free for it: it was accepted before
--               'revoked': codes that are revoked, instead of pairs
--       3 room  0..2^53-1, the largest number of slots to add
--       4 ttl   1..86400000, ms until these keys expire; each piece that adds a slot renews it
--       5 past  0..2^53-1, the number of slots that earlier pieces have added
--       then 1..256 pairs: user, and 'SLOT:BATCH:INDEX:KEY', perhaps with a tab and a code; or
--       1..1024 codes, 'SET.SERIAL' or 'SET'
--
-- Returns the number of slots added, or -1 if the slots of earlier pieces have expired or the
-- keeper's lock may not be held any more; then nothing is written.

local HEAD = 5

local base = match(KEYS[1] or '', '^(coupon:{[1-9]%d*}:fill:%d+):users$')
if #KEYS ~= 3 or not base or KEYS[2] ~= base .. ':known' or KEYS[3] ~= base .. ':codes' then
	fail('KEYS: not the keys of a rebuild')
end
local what = ARGV[2]
local count = 0
if what == 'revoked' then
	codes_check(HEAD + 1)
elseif what == 'issued' or what == 'single' or what == 'flight' then
	count = groups_count(HEAD, 2, 256)
else
	fail('what: not issued, single, flight or revoked')
end
local _, is_over = fence_check(1)
local room, past = integer_check(3, 'room'), integer_check(5, 'past')
integer_check(4, 'ttl', 1, 86400000)
local codes = {} -- of each record
for i = HEAD + 1, HEAD + count * 2, 2 do
	user_check(ARGV[i])
	if not find(ARGV[i + 1], RECORD_SHAPE) then
		fail('record: malformed')
	end
	codes[i] = code_of(ARGV[i + 1])
end

types_check('hash', 'set', 'hash')
if is_over or past > 0 and call('EXISTS', KEYS[1]) == 0 then
	return -1
end

-- place.lua finds by this field that the revoked codes have not expired.
if what == 'revoked' then
	call('HSET', KEYS[3], SETS_REVOKED, '')
	local hset = codes_revoke(KEYS[3], HEAD + 1)
	if hset then
		call(unpack(hset))
	end
	call('PEXPIRE', KEYS[3], ARGV[4])
	return 0
end

local claimed = {'HSET', KEYS[3]}

-- What the filled codes have of each code of these records.
local there = {}
local function codes_look()
	local names, hmget = {}, {'HMGET', KEYS[3]}
	for _, code in pairs(codes) do
		names[#names + 1] = code
		hmget[#hmget + 1] = code
	end
	local found = #names > 0 and call(unpack(hmget)) or {}
	for i, code in ipairs(names) do
		there[code] = found[i]
	end
end
codes_look()

local function code_take(code, user)
	claimed[#claimed + 1] = code
	claimed[#claimed + 1] = code_claimed(there[code], user)
end

local function codes_write()
	if #claimed > 2 then
		call(unpack(claimed))
	end
	call('PEXPIRE', KEYS[3], ARGV[4])
end

if what == 'single' and count <= room then
	for i, code in pairs(codes) do
		code_take(code, ARGV[i])
	end
	call('HSET', KEYS[1], unpack(ARGV, HEAD + 1))
	call('PEXPIRE', KEYS[1], ARGV[4])
	codes_write()
	return count
end

-- Whether another receive has the code, also an earlier one of these.
local taken_codes = {}
local function code_is_taken(code)
	return what == 'flight' and code
		and (taken_codes[code] or there[code] and there[code] ~= '')
end

local hmget = {'HMGET', KEYS[1]}
for i = 1, count do
	hmget[i + 2] = ARGV[HEAD + i * 2 - 1]
end
local stored, fresh = call(unpack(hmget)), {}
local order, sadd, added = {}, {'SADD', KEYS[2]}, 0
for i = 1, count do
	local user, record = ARGV[HEAD + i * 2 - 1], ARGV[HEAD + i * 2]
	local text = fresh[user] or stored[i]
	local slot = match(record, '^%d+:')
	local code = codes[HEAD + i * 2 - 1]
	local taken = text and (sub(text, 1, #slot) == slot or find(text, '\n' .. slot, 1, true))
		or code_is_taken(code)

	if not taken and added < room then
		if not fresh[user] then
			order[#order + 1] = user
		end
		fresh[user] = text and text .. '\n' .. record or record
		added = added + 1
		if code then
			taken_codes[code] = true
			code_take(code, user)
		end
		if what == 'flight' then
			sadd[#sadd + 1] = match(record, '^%d+:([^:]+:%d+):')
		end
	end
end
if added == 0 then
	return 0
end

local hset = {'HSET', KEYS[1]}
for _, user in ipairs(order) do
	hset[#hset + 1] = user
	hset[#hset + 1] = fresh[user]
end
call(unpack(hset))
call('PEXPIRE', KEYS[1], ARGV[4])
codes_write()
if #sadd > 2 then
	call(unpack(sadd))
	call('PEXPIRE', KEYS[2], ARGV[4])
end
return added
