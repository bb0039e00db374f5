-- Extends the lease of a lock, if its holder still has it.
--
-- KEYS  1..3 as in lock_take.lua
-- ARGV  1 kind      x exclusive, f fair, r read, w write
--       2 token     of the holder
--       3 lease_ms  100..86400000
--
-- Returns the time of Redis' clock (ms) until which it has the lock, or 0 if its lease has ended.

local me = lock_check(3)
local lease_ms = integer_check(3, 'lease_ms', 100, LOCK_LEASE_MOST_MS)
local now = now_ms()
local _, _, _, own = lock_look(now, me)

if not own then
	return 0
end
local ends = lock_hold(me, now, lease_ms, own)
lock_keep()
return ends
