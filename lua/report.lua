-- Records the highest number that a gateway has seen of one generation of a coupon, because Redis
-- may have lost it. In a generation older than the coupon's, the reported receives are in flight:
-- their units move from the stock to reserved at once.
--
-- KEYS  1 coupon:{ID}       hash
--       2 coupon:{ID}:seen  hash: generation -> the highest number that gateways have reported
-- ARGV  1 generation  1..2^53-1
--       2 seq         1..2^53-1
--       3 run_id      of this process of Redis, if the gateway was given receives of the coupon
--                     just before it lost another process; or empty
--
-- With a run_id the coupon is to be rebuilt if it is open on this process already: what the other
-- process did not replicate may have the numbers of receives that were accepted here.
--
-- Returns 1 if the number was recorded, or a rebuild is to follow; 0 if it is not higher than the
-- one that Redis has.

local PROCESS_LEN = 32 -- digits of a run id before the term of the lease

keys_check(':seen')
arguments_check(3, 3)
local generation, seq = integer_check(1, 'generation', 1), integer_check(2, 'seq', 1)
local run_id = ARGV[3] ~= '' and run_id_check(3)
types_check('hash', 'hash')

local c = call('HMGET', KEYS[1], 'generation', 'placeholder', 'run_id', 'stock', 'reserved')
if (integer(c[1]) or 0) > generation then
	counts_check(c[2], c[4], c[5])
end
local rebuilds = run_id and not c[2] and integer(c[1]) == generation and c[3]
	and sub(c[3], 1, PROCESS_LEN) == sub(run_id, 1, PROCESS_LEN)
if rebuilds then
	call('HSET', KEYS[1], 'rebuild', '1')
end
return (seen_record(KEYS[2], generation, seq) or rebuilds) and 1 or 0
