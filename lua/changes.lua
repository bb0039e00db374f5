-- Copies numbers of PostgreSQL's table change_count, if this Redis belongs to its installation and
-- follows its server. A copy only grows.
--
-- Redis follows one server: the system identifier of its cluster, and a timeline, which grows with
-- each promotion. It keeps the highest timeline that it has followed of each cluster. A server that
-- is not followed and is not above that is an old one: another was promoted, or took its place.
--
-- KEYS  1 couponmq:changes  hash: stripe to number; `installation`: the id; `system` and `timeline`
--                           of the server; `former`: SYSTEM:TIMELINE of the one before;
--                           `followed:SYSTEM`: the highest timeline of that cluster
-- ARGV  1 installation      the id, a UUID
--       2 adopt             '': not; 'none': Redis gets this id if it has none; or an id: Redis
--                           gets this one if it has that one or none
--       3 server            'SYSTEM:TIMELINE', or '': as if it were followed
--       4 follow            which server is followed from now on, besides that one and the first:
--                           'newer': a higher timeline of the same cluster; 'other': of any
--                           cluster; 'any': an old one too
--       5.. 0..128 pairs: stripe (0..127) and its number (0..2^53-1)
--
-- Returns 'ok'; 'foreign': Redis has the id of another installation; 'unadopted': it has none;
-- 'old': the server is an old one; or 'other': it is not followed, by argument 4.
-- Only with 'ok' something was written. Also when Redis is out of memory, because what follows the
-- copy frees memory. A key of another type has no id, and is replaced.

local UUID = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$'
local SERVER = '^(%-?%d+):(%d+)$'
local FOLLOWS = {newer = true, other = true, any = true}

if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
local count = #ARGV == 4 and 0 or groups_count(4, 2, 128)
local own, adopt, server, follow = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local _, _, system, timeline = find(server, SERVER)
if not find(own, UUID) then
	fail('installation: not a UUID')
end
if adopt ~= '' and adopt ~= 'none' and not find(adopt, UUID) then
	fail("adopt: neither '', nor 'none', nor a UUID")
end
if server ~= '' and not (system and integer(timeline)) then
	fail("server: neither '' nor 'SYSTEM:TIMELINE'")
end
if not FOLLOWS[follow] then
	fail("follow: not 'newer', 'other' or 'any'")
end
for i = 1, count do
	integer_check(i * 2 + 3, 'stripe', 0, 127)
	integer_check(i * 2 + 4, 'number')
end
local kind = call('TYPE', KEYS[1]).ok
local known = kind == 'hash' and call('HGET', KEYS[1], 'installation')
if known ~= own then
	if known and known ~= adopt then
		return 'foreign'
	elseif adopt == '' then
		return 'unadopted'
	end
end

local is_new, highest, followed, before = false, 0, false, false
if system then
	followed = kind == 'hash' and call('HGET', KEYS[1], 'system')
	before = kind == 'hash' and call('HGET', KEYS[1], 'timeline')
	highest = kind == 'hash' and integer(call('HGET', KEYS[1], 'followed:' .. system)) or 0
	is_new = followed ~= system or before ~= timeline
	if is_new and follow ~= 'any' and highest >= tonumber(timeline) then
		return 'old'
	elseif is_new and follow == 'newer' and followed and followed ~= system then
		return 'other'
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
if is_new then
	if followed and before then
		call('HSET', KEYS[1], 'former', followed .. ':' .. before)
	end
	call('HSET', KEYS[1], 'system', system, 'timeline', timeline, 'followed:' .. system,
		tonumber(timeline) > highest and timeline or highest)
end
for i = 1, count do
	local copied = integer(call('HGET', KEYS[1], ARGV[i * 2 + 3]))
	if not copied or copied < tonumber(ARGV[i * 2 + 4]) then
		call('HSET', KEYS[1], ARGV[i * 2 + 3], ARGV[i * 2 + 4])
	end
end
return 'ok'
