/*
 * How the services must be set for the promises to hold: DURABILITY(part, setting, values, lost).
 * `values` are the sufficient ones, the recommended one first; `lost` is what a weaker one loses.
 * docs/operations.md describes them in full. No include guard: included for its expansion.
 *
 * RabbitMQ is not listed, because AMQP does not report settings. The programs declare its queues,
 * and RabbitMQ refuses a declaration that differs.
 */
DURABILITY(REDIS, "appendonly", "yes",
	   "accepted receives are only in memory, and are lost when Redis ends")
DURABILITY(REDIS, "appendfsync", "always",
	   "about the last second of accepted receives is lost when the machine dies")
DURABILITY(REDIS, "maxmemory-policy", "noeviction",
	   "a full Redis may evict a coupon and the slots of its users")
DURABILITY(POSTGRESQL, "fsync", "on",
	   "committed user coupons are lost, or the database is corrupt, when the machine dies")
DURABILITY(POSTGRESQL, "synchronous_commit", "on remote_apply remote_write local",
	   "the last committed user coupons are lost when PostgreSQL dies, although their messages "
	   "were acked")
DURABILITY(POSTGRESQL, "full_page_writes", "on",
	   "the database may be corrupt after the machine dies during a write")
