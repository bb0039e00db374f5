-- Removes the oldest uses (lua/uses.lua) from a Redis that is nearly full: issuing goes first. A
-- list that is gone although nobody has removed it is to be filled again, as in lua/uses.lua.
--
-- KEYS  1 couponmq:changes         hash: see lua/uses.lua and lua/uses_fill.lua
--       2 {couponmq:changes}:uses  list of records
-- ARGV  1 for how long records are kept (ms)
--
-- Returns how many were removed, how many bytes are left, and for how long (ms) the list has all of
-- them, at most argument 1. Once it removes some, none is filled below them any more.

local OVERHEAD = 16 -- as of lua/uses.lua
local FULL = 0.9 -- of maxmemory
local MOST = 1000 -- records of a call

if #KEYS ~= 2 or KEYS[2] ~= '{' .. KEYS[1] .. '}:uses' then
	fail('KEYS: not the changes, and the uses of them')
end
arguments_check(1, 1)
local keep_ms = integer_check(1, 'keep')
types_check('hash', 'list')

-- What Redis itself compares with maxmemory.
local info = call('INFO', 'memory')
local function memory(field)
	return tonumber(match(info, '\n' .. field .. ':(%d+)')) or 0
end
local limit = memory('maxmemory')
local excess = limit > 0 and
	memory('used_memory') - memory('mem_not_counted_for_evict') - limit * FULL or 0

local known = call('HMGET', KEYS[1], 'uses_bytes', 'uses_since', 'uses_from')
local bytes, since, removed = integer(known[1]) or 0, integer(known[2]) or 0, 0
if bytes > 0 and call('EXISTS', KEYS[2]) == 0 then
	bytes, since = 0, now_ms()
	call('HDEL', KEYS[1], 'uses_run')
	call('HSET', KEYS[1], 'uses_bytes', '0', 'uses_since', decimal(since))
elseif excess > 0 then
	-- Redis refuses a write for lack of memory only if it is the first one, and never an HDEL.
	call('HDEL', KEYS[1], '')
	while excess > 0 and removed < MOST do
		local oldest = call('LPOP', KEYS[2])
		if not oldest then
			break
		end
		local seconds = match(oldest, '^%[1, %d+, ([%d.]+),')
		local size = #oldest + OVERHEAD
		removed, bytes, excess = removed + 1, bytes - size, excess - size
		since = seconds and math.max(since, math.floor(seconds * 1000) + 1) or since
	end
	if removed > 0 then
		bytes = math.max(bytes, 0)
		call('HSET', KEYS[1], 'uses_bytes', decimal(bytes), 'uses_since', decimal(since))
	end
	if known[3] and known[3] ~= '0' then
		call('HSET', KEYS[1], 'uses_from', '0')
	end
end
return {removed, bytes, math.max(math.min(keep_ms, now_ms() - since), 0)}
