-- Stops the issuing of a coupon while the keeper compares or rebuilds it: no Redis process is its verified one. Where Redis
-- does not have the coupon, or something else by its name, a placeholder is put, which is never verified: so this keeper's
-- fence is known.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 fence       0..2^53-1, the keeper's
--       2 generation  1..2^53-1, for the placeholder
--
-- Returns 'held', or 'fenced' if the coupon has a higher fence. Errors: ERR couponmq: <what is wrong>, and then nothing
-- was written.

local call, bad, find = redis.call, redis.error_reply, string.find

local MAX_INT = 9007199254740991 -- 2^53-1: beyond it Lua's numbers skip integers
local NOBODY = string.rep('0', 40)

local function integer(text)
	if not text or not find(text, '^%d+$') or #text > 16 or find(text, '^0.') then
		return nil
	end
	local n = tonumber(text)
	return n <= MAX_INT and n or nil
end

local base = KEYS[1] or ''
if #KEYS ~= 3 or not find(base, '^coupon:{[1-9]%d*}$')
	or KEYS[2] ~= base .. ':users' or KEYS[3] ~= base .. ':outbox' then
	return bad('ERR couponmq: KEYS: not the three keys of one coupon')
end
local fence, generation = integer(ARGV[1]), integer(ARGV[2])
if #ARGV ~= 2 or not fence or not generation or generation < 1 then
	return bad('ERR couponmq: fence, generation: not within 0..2^53-1 and 1..2^53-1')
end

local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'hash' then
	if kind ~= 'none' then
		call('UNLINK', KEYS[1])
	end
	call('HSET', KEYS[1], 'placeholder', '1', 'status', 'closed', 'run_id', NOBODY, 'generation', ARGV[2], 'seq', '0',
		'total', '0', 'stock', '0', 'reserved', '0', 'begin', '0', 'end', '0', 'limit', '1', 'fence', ARGV[1],
		'version', '1')
	return 'held'
end
-- A fence that cannot be read is no reason to leave the coupon open: the rebuild writes it anew.
local known = integer(call('HGET', KEYS[1], 'fence'))
if known and known > fence then
	return 'fenced'
end
call('HSET', KEYS[1], 'run_id', NOBODY, 'fence', ARGV[1])
return 'held'
