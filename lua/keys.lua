-- Copies API keys, as PostgreSQL has them, into this Redis, if it belongs to the same installation.
-- What Redis has of a key only grows: a record replaces one of a lower version, and one that is
-- revoked replaces one that is not, but never the other way round. So it does not matter in which
-- order calls arrive, nor who sends them.
--
-- KEYS  1 couponmq:keys     hash: id of the key to its record; `version`: a number
--       2 couponmq:changes  hash: `installation`: the id
-- ARGV  1 installation  the id, a UUID
--       2 from          0..2^53-1
--       3 to            from..2^53-1
--       then 0..100 records in JSON (sql/function/api_key_records.sql), of at most 16384 bytes:
--       all those of PostgreSQL whose versions are above `from` and at most `to`
--
-- `version` says that Redis has every key whose version in PostgreSQL is at most this. So it is
-- raised to `to` only if it is at least `from`: Redis may have lost what earlier calls wrote. It
-- never falls. The script also runs when Redis is out of memory: a revocation must not wait.
--
-- Returns {'ok', version}; 'foreign': Redis has the id of another installation; or 'unadopted': it
-- has none. Only with 'ok' something was written.

local HEAD, MOST, BYTES_MOST = 3, 100, 16384
local UUID = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$'
local ID = '^' .. string.rep('[0-9a-hjkmnp-tv-z]', 10) .. '$'

-- Returns id, version, and whether it is revoked; nil: it is no record.
local function parse(text)
	local ok, record = protected(cjson.decode, text)
	if not ok or type(record) ~= 'table' or type(record.id) ~= 'string'
		or not find(record.id, ID) or type(record.version) ~= 'number'
		or record.version < 1 or record.version > MAX_INT or record.version % 1 ~= 0
		or type(record.revoked) ~= 'boolean' then
		return nil
	end
	return record.id, record.version, record.revoked
end

if #KEYS ~= 2 then
	fail('KEYS: 2 are needed')
end
arguments_check(HEAD, HEAD + MOST)
if not find(ARGV[1], UUID) then
	fail('installation: not a UUID')
end
local from = integer_check(2, 'from')
local to = integer_check(3, 'to', from)
local ids, records, is_given = {}, {}, {}
for i = HEAD + 1, #ARGV do
	local id, version, revoked = parse(ARGV[i])
	if not id or #ARGV[i] > BYTES_MOST or version <= from or version > to then
		fail('record ' .. i - HEAD .. ': not one of a key above `from` and at most `to`')
	end
	if is_given[id] then
		fail('record ' .. i - HEAD .. ': the key is given twice')
	end
	is_given[id] = true
	ids[#ids + 1] = id
	records[#records + 1] = {text = ARGV[i], version = version, revoked = revoked}
end
types_check('hash', 'hash')

local installation = call('HGET', KEYS[2], 'installation')
if installation ~= ARGV[1] then
	return installation and 'foreign' or 'unadopted'
end
local known = integer(call('HGET', KEYS[1], 'version')) or 0
local there = #ids > 0 and call('HMGET', KEYS[1], unpack(ids)) or {}
local hset = {'HSET', KEYS[1]}
for i, record in ipairs(records) do
	local id, version, revoked = parse(there[i] or '')
	-- A field that is no record of this key is replaced.
	if id ~= ids[i] or (record.revoked or not revoked)
		and (record.version > version or record.revoked and not revoked) then
		hset[#hset + 1] = ids[i]
		hset[#hset + 1] = record.text
	end
end
if from <= known and to > known then
	known = to
	hset[#hset + 1] = 'version'
	hset[#hset + 1] = decimal(to)
end
-- Redis refuses a write for lack of memory only if it is the first one, and never this one.
if #hset > 2 then
	call('HDEL', KEYS[1], '')
	call(unpack(hset))
end
return {'ok', known}
