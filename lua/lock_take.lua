-- Takes a lock, or waits in its queue. A holder that takes it again with its token gets its grant
-- again, with a new lease.
--
-- KEYS  1 couponmq:lock:{NAME}        hash: fence, ticket (the last ones), and for each holder
--                                     KIND:TOKEN = 'UNTIL FENCE LEASE' (ms of Redis' clock)
--       2 couponmq:lock:{NAME}:queue  sorted set: KIND:TOKEN of those who wait, by their tickets
--       3 couponmq:lock:{NAME}:seen   sorted set: the same, by the time at which each is given up
-- ARGV  1 kind       x exclusive, f fair, r read, w write
--       2 token      SESSION.NUMBER, 3..128 bytes
--       3 lease_ms   100..86400000
--       4 waiter_ms  for how long it waits if it does not ask again: 0..60000; 0: it does not wait
--
-- Returns {1, UNTIL, FENCE}, or {0, LEFT}: the ms until the next lease ends, 0 if it waits only for
-- others that wait. The fence grows with each grant, also after Redis has lost its data: it is at
-- least the time in microseconds.

local me = lock_check(4)
local kind = sub(me, 1, 1)
local lease_ms = integer_check(3, 'lease_ms', 100, LOCK_LEASE_MOST_MS)
local waiter_ms = integer_check(4, 'waiter_ms', 0, LOCK_WAITER_MOST_MS)
local now, now_us = now_ms_us()
local holders, writer, left_ms, own = lock_look(now, me)

if own then
	local ends = lock_hold(me, now, lease_ms, own)
	lock_keep()
	return {1, ends, tonumber(own)}
end

-- Whether one who waits has to go before.
local function is_behind_another()
	if kind == 'x' then
		return false
	end
	for _, waiter in ipairs(call('ZRANGE', KEYS[2], 0, -1)) do
		local other = sub(waiter, 1, 1)
		if waiter == me then
			return false
		end
		if other ~= 'x' and (kind ~= 'r' or other ~= 'r') then
			return true
		end
	end
	return false
end

if writer or (holders > 0 and kind ~= 'r') or is_behind_another() then
	if waiter_ms > 0 then
		if not call('ZSCORE', KEYS[2], me) then
			-- HINCRBY would fail on what is no number, after lock_look() has written.
			local ticket = (integer(call('HGET', KEYS[1], 'ticket')) or 0) + 1
			call('HSET', KEYS[1], 'ticket', decimal(ticket))
			call('ZADD', KEYS[2], ticket, me)
		end
		call('ZADD', KEYS[3], now + waiter_ms, me)
		lock_keep()
	end
	return {0, left_ms}
end

local fence = math.max((integer(call('HGET', KEYS[1], 'fence') or '0') or 0) + 1, now_us)
call('HSET', KEYS[1], 'fence', decimal(fence))
local ends = lock_hold(me, now, lease_ms, decimal(fence))
lock_leave(me)
lock_keep()
if kind == 'r' then
	lock_wake(holders + 1, false)
end
return {1, ends, fence}
