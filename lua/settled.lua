-- Removes settled batches from the outbox, and records when each was accepted and which of its
-- receives were rejected. A batch that is not in the outbox is not recorded: it is already, or
-- something else than settling has removed it.
--
-- KEYS  1 coupon:{ID}:outbox    hash: batch to message body
--       2 coupon:{ID}:settled   list of 'BATCH:AT'
--       3 coupon:{ID}:rejected  list of 'BATCH:INDEX:SLOT:REASON:USER'
-- ARGV  1..1280, of at most 64 batches: for each 'BATCH:AT', its ULID and the time of its message
--       (ms), followed by 'BATCH:INDEX:SLOT:REASON:USER' for each of its rejected receives
--
-- Returns how many batches were removed. Also when Redis is out of memory.

local ULID = '^([0-7][0-9A-HJKMNP-TV-Z]*):'

local base = match(KEYS[1] or '', '^(coupon:{[1-9]%d*}):outbox$')
if #KEYS ~= 3 or not base or KEYS[2] ~= base .. ':settled' or KEYS[3] ~= base .. ':rejected' then
	fail('KEYS: not the outbox of a coupon, and :settled, :rejected of it')
end
arguments_check(1, 1280)

local function receive_check(text, batch)
	local own, index, slot, user = match(text, ULID .. '(%d+):(%d+):[a-z_]+:(.*)$')
	if own ~= batch or not integer(index, 0, MAX_INDEX) or not integer(slot, 0, 32767) then
		fail('receive: not BATCH:INDEX:SLOT:REASON:USER of the batch before it')
	end
	user_check(user)
end

-- For each batch: its ULID, its own argument, and the argument of its last receive.
local batches, firsts, lasts = {}, {}, {}
for i, text in ipairs(ARGV) do
	local batch, at = match(text, ULID .. '(%d+)$')
	if batch and #batch == 26 and integer(at) then
		batches[#batches + 1], firsts[#firsts + 1] = batch, i
	elseif #batches == 0 then
		fail('batch: not BATCH:AT')
	else
		receive_check(text, batches[#batches])
	end
	lasts[#batches] = i
end
if #batches > 64 then
	fail('ARGV: more than 64 batches')
end
types_check('hash', 'list', 'list')

-- All that is removed first: Redis refuses a write for lack of memory only if it is the first one,
-- and never an HDEL.
local settled, rejected = {}, {}
for i, batch in ipairs(batches) do
	if call('HDEL', KEYS[1], batch) == 1 then
		settled[#settled + 1] = ARGV[firsts[i]]
		for j = firsts[i] + 1, lasts[i] do
			rejected[#rejected + 1] = ARGV[j]
		end
	end
end
if #settled > 0 then
	call('RPUSH', KEYS[2], unpack(settled))
end
if #rejected > 0 then
	call('RPUSH', KEYS[3], unpack(rejected))
end
return #settled
