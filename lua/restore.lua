-- Writes messages of a coupon to its outbox again, after Redis has lost them. A gateway calls it
-- for batches that RabbitMQ has not confirmed, a worker for deliveries that it cannot settle yet.
--
-- KEYS  1 coupon:{ID}         hash
--       2 coupon:{ID}:outbox  hash: batch -> the exact message body
--       3 coupon:{ID}:seen    hash: generation -> the highest number that gateways have reported
--       4 coupon:{ID}:dead    set: batches in the dead-letter queue, or dropped from it
-- ARGV  for each of 1..16 messages:
--       batch       ULID
--       generation  1..2^53-1
--       seq         1..2^53-1, the number of its last receive
--       body        of the message
--
-- A message is lost if the coupon's numbers do not cover it: it is held without data (a
-- placeholder), is of another generation, or has a lower seq. Its number is recorded as report.lua
-- does, and its body is added unless the outbox has it. If the numbers cover it, a missing entry
-- was settled or dropped, and nothing is written; nor for a batch in the dead-letter queue. Slots
-- and codes are never touched: the rebuild fills the slots of messages in the outbox.
--
-- Returns how many messages were added; 'missing' if Redis does not have the coupon, because a
-- message without its coupon would be taken for one of a later filling; 'expires' if every receive
-- of the coupon has its outcome (expire.lua). Nothing is written then.

local EACH = 4

keys_check(':outbox', ':seen', ':dead')
local count = groups_count(0, EACH, 16)
local messages = {}
for i = 1, count do
	local at = (i - 1) * EACH
	local batch, body = ARGV[at + 1], ARGV[at + 4]
	if #batch ~= 26 or not find(batch, '^[0-7][0-9A-HJKMNP-TV-Z]*$') then
		fail('batch: not a ULID')
	end
	if body == '' then
		fail('body: empty')
	end
	messages[i] = {
		batch = batch,
		body = body,
		generation = integer_check(at + 2, 'generation', 1),
		seq = integer_check(at + 3, 'seq', 1),
	}
end

types_check('hash', 'hash', 'hash', 'set')
local c = call('HMGET', KEYS[1], 'generation', 'seq', 'placeholder', 'stock', 'reserved')
if not c[1] then
	return 'missing'
end
if call('PTTL', KEYS[1]) >= 0 then
	return 'expires'
end
counts_check(c[3], c[4], c[5])

local generation, seq = not c[3] and integer(c[1]), integer(c[2]) or 0
local added = 0
for _, message in ipairs(messages) do
	local is_covered = generation == message.generation and seq >= message.seq
	if not is_covered and call('SISMEMBER', KEYS[4], message.batch) == 0 then
		seen_record(KEYS[3], message.generation, message.seq)
		added = added + call('HSETNX', KEYS[2], message.batch, message.body)
	end
end
return added
