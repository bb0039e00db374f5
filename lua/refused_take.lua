-- Takes what gateways have refused.
--
-- KEYS  1 couponmq:refused  hash: see refused.lua
--
-- Returns its fields and numbers in turn; the hash is gone.

if #KEYS ~= 1 then
	fail('KEYS: 1 is needed')
end
types_check('hash')

local all = call('HGETALL', KEYS[1])
if #all > 0 then
	call('UNLINK', KEYS[1])
end
return all
