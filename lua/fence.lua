-- Raises the fence of a coupon to that of a newly elected keeper. From then on, writes of earlier
-- keepers to this coupon are refused.
--
-- KEYS  1 coupon:{ID}  2 coupon:{ID}:users  3 coupon:{ID}:outbox
-- ARGV  1 fence  NUMBER:FROM:UNTIL, see fence_check()
--
-- Returns 'raised'; otherwise nothing is written: 'current' if the coupon has this fence; 'fenced'
-- if it has a higher one or the keeper's lock may not be held any more; 'missing'.

keys_check(':users', ':outbox')
arguments_check(1, 1)
local fence, is_over = fence_check(1)

types_check('hash')
if call('EXISTS', KEYS[1]) == 0 then
	return 'missing'
end
local known = call('HGET', KEYS[1], 'fence')
if is_over or is_fenced(known, fence) then
	return 'fenced'
end
if tonumber(known) == fence then
	return 'current'
end
call('HSET', KEYS[1], 'fence', decimal(fence))
return 'raised'
