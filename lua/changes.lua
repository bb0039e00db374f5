-- Copies numbers of PostgreSQL's table change_count, if this Redis belongs to its installation. A
-- copy only grows.
--
-- KEYS  1 couponmq:changes  hash: stripe to number; `installation`: the id
-- ARGV  1 installation      the id, a UUID
--       2 claim             '': not; 'none': Redis gets this id if it has none; or an id: Redis
--                           gets this one if it has that one or none
--       3.. 0..64 pairs: stripe (0..63) and its number (0..2^53-1)
--
-- Returns 'ok'; 'foreign': Redis has the id of another installation; or 'unclaimed': it has none.
-- Only with 'ok' something was written. Also when Redis is out of memory, because what follows the
-- copy frees memory. A key of another type has no id, and is replaced.

local UUID = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$'

if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
local count = #ARGV == 2 and 0 or groups_count(2, 2, 64)
local own, claim = ARGV[1], ARGV[2]
if not find(own, UUID) then
	fail('installation: not a UUID')
end
if claim ~= '' and claim ~= 'none' and not find(claim, UUID) then
	fail("claim: neither '', nor 'none', nor a UUID")
end
for i = 1, count do
	integer_check(i * 2 + 1, 'stripe', 0, 63)
	integer_check(i * 2 + 2, 'number')
end
local kind = call('TYPE', KEYS[1]).ok
local known = kind == 'hash' and call('HGET', KEYS[1], 'installation')
if known ~= own then
	if known and known ~= claim then
		return 'foreign'
	elseif claim == '' then
		return 'unclaimed'
	end
end

-- Redis refuses a write for lack of memory only if it is the first one, and never these.
if kind ~= 'hash' and kind ~= 'none' then
	call('UNLINK', KEYS[1])
end
call('HDEL', KEYS[1], '')
if known ~= own then
	call('HSET', KEYS[1], 'installation', own)
end
for i = 1, count do
	local copied = integer(call('HGET', KEYS[1], ARGV[i * 2 + 1]))
	if not copied or copied < tonumber(ARGV[i * 2 + 2]) then
		call('HSET', KEYS[1], ARGV[i * 2 + 1], ARGV[i * 2 + 2])
	end
end
return 'ok'
