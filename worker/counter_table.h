/*
 * The loop's counters, each once: STAT(name, "help"). The log line `stats` has the name, the metric
 * is couponmq_worker_NAME_total. No include guard: included for its expansion.
 */
STAT(messages, "Messages received, including redeliveries.")
STAT(receives, "Receives in committed transactions.")
STAT(issued, "Of those, issued for the first time.")
STAT(repeated, "Of those, already issued earlier.")
STAT(rejected, "Of those, rejected.")
STAT(dead, "Messages dead-lettered and confirmed.")
STAT(transactions, "Committed transactions.")
STAT(retries, "Transactions that were refused or lost, and were retried.")
STAT(blocked, "Transactions that met a lock or a statement time-out, and were split or put off.")
STAT(parked, "Messages moved to the parking queue and confirmed.")
STAT(requeued, "Messages moved to the end of the receive queue: the parking queue refuses them.")
STAT(rescued, "Messages with a high delivery count that were published to their queue again and "
	      "confirmed.")
STAT(replies, "Outcomes sent to gateways, one message each.")
STAT(replies_lost, "Replies that could not be sent; the gateway looks the receive up instead.")
