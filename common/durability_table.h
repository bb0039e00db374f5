/*
 * How the services must be set for the promises to hold: DURABILITY(part, setting, values, lost).
 * `values` are those that will do, the wanted one first; `lost` is what a weaker one costs.
 * docs/operations.md has the same in full. No include guard: included for its expansion.
 *
 * RabbitMQ is not here: AMQP tells no settings. The programs declare its queues, and a declaration
 * that differs is refused.
 */
DURABILITY(REDIS, "appendonly", "yes",
	   "accepted receives are in memory alone, and lost when Redis ends")
DURABILITY(REDIS, "appendfsync", "always",
	   "about the last second of accepted receives is lost when the machine dies")
DURABILITY(REDIS, "maxmemory-policy", "noeviction",
	   "a full Redis may throw a coupon away, and what it knows of its users")
DURABILITY(POSTGRESQL, "fsync", "on",
	   "committed user coupons are lost, or the database is broken, when the machine dies")
DURABILITY(POSTGRESQL, "synchronous_commit", "on remote_apply remote_write local",
	   "the last committed user coupons are lost when PostgreSQL dies, although their messages "
	   "were acked")
DURABILITY(POSTGRESQL, "full_page_writes", "on",
	   "the database may be broken after the machine dies in the middle of a write")
