-- Gives up a lock, or the place in its queue, and wakes those who can take it now.
--
-- KEYS  1..3 as in lock_take.lua
-- ARGV  1 kind   x exclusive, f fair, r read, w write
--       2 token  of the holder
--
-- Returns 1, or 0 if it does not have the lock: it never had it, or its lease has ended.

local me = lock_check(2)
local holders, writer, _, own = lock_look(now_ms(), me)

if own then
	call('HDEL', KEYS[1], me)
	holders, writer = holders - 1, false -- who shared it with a reader is no writer
end
lock_leave(me)
lock_wake(holders, writer)
return own and 1 or 0
