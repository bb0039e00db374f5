-- Fills the list of uses (lua/uses.lua) from PostgreSQL, the newest first, after Redis has lost
-- some of it.
--
-- KEYS  1 couponmq:changes         hash: see lua/uses.lua; and `uses_run`: the run id for which the
--                                  list was filled, or is; `uses_from`: the number from which on it
--                                  was filled; 0: none is to follow
--       2 {couponmq:changes}:uses  list of records
-- ARGV  1 run id of this process
--       2 'keep': the list has lost nothing; 'begin': it is to be filled anew; or the number from
--         which on it was filled
--       3 the same after this; 0: no more records follow
--       4 how many bytes of them
--       5.. 0..1000 records, from higher numbers to lower ones
--
-- Returns 'ok'; 'full': not all were added, and none is to follow; or 'moved': another keeper goes
-- on, or Redis has lost data again.

local OVERHEAD = 16 -- as of lua/uses.lua

if #KEYS ~= 2 or KEYS[2] ~= '{' .. KEYS[1] .. '}:uses' then
	fail('KEYS: not the changes, and the uses of them')
end
arguments_check(4, 1004)
run_id_check(1)
local is_kept, is_begun = ARGV[2] == 'keep', ARGV[2] == 'begin'
if not is_kept and not is_begun then
	integer_check(2, 'from')
end
local to, bytes_most = integer_check(3, 'to'), integer_check(4, 'bytes')
for i = 5, #ARGV do
	if not find(ARGV[i], '^%[1, %d+, [%d.]+,') then
		fail('record: not [1, NUM, SECONDS,')
	end
end
types_check('hash', 'list')

if is_kept then
	call('HSET', KEYS[1], 'uses_run', ARGV[1])
	return 'ok'
elseif is_begun then
	call('UNLINK', KEYS[2])
	call('HSET', KEYS[1], 'uses_run', ARGV[1], 'uses_from', decimal(MAX_INT), 'uses_bytes', '0',
		'uses_since', decimal(now_ms()))
	return 'ok'
end
local known = call('HMGET', KEYS[1], 'uses_run', 'uses_from', 'uses_bytes', 'uses_since')
if known[1] ~= ARGV[1] or known[2] ~= ARGV[2] then
	return 'moved'
end
local bytes, since, word = integer(known[3]) or 0, integer(known[4]) or 0, 'ok'
for i = 5, #ARGV do
	local seconds = match(ARGV[i], '^%[1, %d+, ([%d.]+),')
	if bytes + #ARGV[i] + OVERHEAD > bytes_most then
		word, to = 'full', 0
		break
	end
	call('LPUSH', KEYS[2], ARGV[i])
	bytes, since = bytes + #ARGV[i] + OVERHEAD, math.floor(seconds * 1000)
end
call('HSET', KEYS[1], 'uses_from', decimal(to), 'uses_bytes', decimal(bytes), 'uses_since',
	decimal(word == 'ok' and to == 0 and 0 or since))
return word
