-- Adds what operations have done to receives (sql/function/use.sql), with the number of their
-- transaction, for a PostgreSQL that is put back to an earlier moment; and removes the oldest of
-- such records, by their time and by their bytes.
--
-- A session of PostgreSQL is announced before its numbers are compared with their copy. From then
-- on nothing is added that was committed before the server was started again: the server may have
-- been put back meanwhile, and what it lacks was not compared.
--
-- KEYS  1 couponmq:changes         see lua/changes.lua; and `started`: of the server that was
--                                  announced last, `uses_bytes`, `uses_since`: the time (ms) from
--                                  which on all records are there
--       2 {couponmq:changes}:uses  list of records, '[1, NUM, SECONDS, ..]'
-- ARGV  1 installation  2 server, 'SYSTEM:TIMELINE'
--       3 started: when the server was started, any text; the same for all its sessions
--       4 for how long records are kept (ms)  5 how many bytes of them
--       6 number, 'STRIPE:NUM'; '': the session is announced, and there are no records
--       7.. 0..1000 records
--
-- Returns 'ok'; 'stale': another server was announced; or 'other': Redis does not belong to the
-- installation, or does not follow the server. Only with 'ok' something was written. Also when
-- Redis is out of memory, like lua/changes.lua: issuing has more of it, the less is kept here.

local OVERHEAD = 16 -- bytes of a record in the list, about

if #KEYS ~= 2 or KEYS[2] ~= '{' .. KEYS[1] .. '}:uses' then
	fail('KEYS: not the changes, and the uses of them')
end
arguments_check(6, 1006)
local keep_ms, bytes_most = integer_check(4, 'keep'), integer_check(5, 'bytes')
local _, _, stripe, num = find(ARGV[6], '^(%d+):(%d+)$')
if ARGV[6] ~= '' and not (integer(stripe, 0, 127) and integer(num)) then
	fail("number: neither '' nor STRIPE:NUM")
elseif ARGV[6] == '' and #ARGV > 6 then
	fail('records: without a number')
end
for i = 7, #ARGV do
	if not find(ARGV[i], '^%[1, %d+, [%d.]+,') then
		fail('record: not [1, NUM, SECONDS,')
	end
end
types_check('hash', 'list')

local known = call('HMGET', KEYS[1], 'installation', 'system', 'timeline', 'started', 'uses_bytes',
	'uses_since', 'uses_from', stripe or '')
if known[1] ~= ARGV[1] or not known[2] or known[2] .. ':' .. (known[3] or '') ~= ARGV[2] then
	return 'other'
elseif ARGV[6] ~= '' and known[4] ~= ARGV[3] then
	return 'stale'
end

-- Redis refuses a write for lack of memory only if it is the first one, and never an HDEL.
call('HDEL', KEYS[1], '')
local now = now_ms()
local bytes, since, removed = integer(known[5]) or 0, integer(known[6]) or now, 0
if bytes > 0 and call('EXISTS', KEYS[2]) == 0 then
	-- Evicted, or deleted: the keeper fills it again.
	bytes, since = 0, now
	call('HDEL', KEYS[1], 'uses_run')
end
for i = 7, #ARGV do
	call('RPUSH', KEYS[2], ARGV[i])
	bytes = bytes + #ARGV[i] + OVERHEAD
end
-- More than are added, so that what is kept shrinks to a new bound, and in steps.
for _ = 1, 2 * #ARGV do
	local oldest = call('LINDEX', KEYS[2], 0)
	local seconds = oldest and match(oldest, '^%[1, %d+, ([%d.]+),')
	local at_ms = seconds and math.floor(seconds * 1000)
	if not oldest or bytes <= bytes_most and at_ms and at_ms > now - keep_ms then
		break
	end
	call('LPOP', KEYS[2])
	removed, bytes = removed + 1, bytes - #oldest - OVERHEAD
	since = at_ms and math.max(since, at_ms + 1) or since
end
call('HSET', KEYS[1], 'uses_bytes', decimal(math.max(bytes, 0)), 'uses_since', decimal(since))
if removed > 0 and known[7] then
	call('HSET', KEYS[1], 'uses_from', '0') -- none is filled below them
end
if ARGV[6] == '' then
	call('HSET', KEYS[1], 'started', ARGV[3])
elseif (integer(known[8]) or 0) < tonumber(num) then
	call('HSET', KEYS[1], stripe, num)
end
return 'ok'
