-- Gives up the keeper's lock, if this keeper still holds it.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token  1..128 bytes of printable ASCII without space
--
-- Returns 1, or 0 if the lock has expired or another keeper holds it.
-- Errors: ERR couponmq: <what is wrong>. On an error nothing is written.

local token = token_check(1)

if lock_owner() ~= token then
	return 0
end
return call('DEL', KEYS[1])
