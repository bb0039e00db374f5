-- Takes the keeper's lock when nobody holds it. One that would last longer than any lease, or for ever, is nobody's: Redis' clock
-- was set back since, or somebody wrote it by hand.
--
-- KEYS  1 couponmq:keeper  string: the token of its holder
-- ARGV  1 token   1..128 bytes of printable ASCII without space
--       2 ttl_ms  1..86400000 milliseconds from now
--       3 most_ms the longest lease there is, likewise
--
-- Returns 1, or 0 if it is another's. Errors: ERR couponmq: ..., and then nothing was written.

local token = ARGV[1]
if #KEYS ~= 1 or #ARGV ~= 3 then
	return redis.error_reply('ERR couponmq: 1 key and 3 arguments are needed')
end
if #token < 1 or #token > 128 or string.find(token, '[^!-~]') then
	return redis.error_reply('ERR couponmq: token: not 1 to 128 bytes of printable ASCII without space')
end
for index, name in ipairs({ 'ttl_ms', 'most_ms' }) do
	local number = string.find(ARGV[1 + index], '^[1-9]%d*$') and tonumber(ARGV[1 + index])
	if not number or number > 86400000 then
		return redis.error_reply('ERR couponmq: ' .. name .. ': not an integer within 1..86400000')
	end
end

local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'table' then
	return redis.error_reply('ERR couponmq: ' .. KEYS[1] .. ': ' .. owner.err)
end
local left_ms = redis.call('PTTL', KEYS[1])
if left_ms >= 0 and left_ms <= tonumber(ARGV[3]) then
	return 0
end
redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
return 1
