-- Stops the issuing of a coupon while the keeper compares or rebuilds it: the coupon is marked as
-- verified on no Redis process. If Redis does not have the coupon, or its key has another type, a
-- placeholder with this keeper's fence is written. A placeholder is never verified.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 fence       NUMBER:FROM:UNTIL, see fence_check()
--       2 generation  1..2^53-1, for the placeholder
--       3 wait_ms     0 if absent: for how long the coupon must be held already, because gateways
--                     report what they have seen when they are refused
--
-- Returns 'held'; 'early' if it is held, but not for so long; 'fenced'.

keys_check(':users', ':outbox')
arguments_check(2, 3)
local fence, is_over = fence_check(1)
integer_check(2, 'generation', 1)
local wait_ms = ARGV[3] and integer_check(3, 'wait_ms') or 0

if is_over then
	return 'fenced'
end
local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'hash' then
	if kind ~= 'none' then
		call('UNLINK', KEYS[1])
	end
	call('HSET', KEYS[1], 'placeholder', '1', 'status', 'closed', 'run_id', RUN_ID_NONE,
		'generation', ARGV[2], 'seq', '0', 'total', '0', 'stock', '0', 'reserved', '0',
		'begin', '0', 'end', '0', 'limit', '1', 'fence', decimal(fence),
		'version', '1')
else
	-- A malformed fence does not prevent the hold: the rebuild writes a new one.
	local known = integer(call('HGET', KEYS[1], 'fence'))
	if known and known > fence then
		return 'fenced'
	end
	call('HSET', KEYS[1], 'run_id', RUN_ID_NONE, 'fence', decimal(fence))
end
if wait_ms == 0 then
	return 'held'
end
local now, since = now_ms(), integer(call('HGET', KEYS[1], 'held_at'))
if not since or since > now then
	call('HSET', KEYS[1], 'held_at', decimal(now))
	return 'early'
end
return now - since < wait_ms and 'early' or 'held'
