/* The loop's counters, each once. No include guard: included for its expansion. */
STAT(messages)     /* received, redeliveries too */
STAT(receives)     /* in committed transactions */
STAT(issued)       /* of those: newly issued */
STAT(repeated)     /* issued earlier */
STAT(rejected)
STAT(dead)         /* messages dead-lettered, confirmed */
STAT(transactions) /* committed */
STAT(retries)      /* transactions that were refused or lost */
STAT(replies)      /* outcomes told to a gateway */
STAT(replies_lost) /* could not be sent */
