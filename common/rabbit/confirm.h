/*
 * The confirm window of one channel: which published messages the broker has not yet confirmed, by
 * delivery tag. Pure bookkeeping, no I/O; one thread.
 *
 *	tags:   first ……………………………… next - 1 | next
 *	        done  open  done  open …        (finished tags at the front are removed at once)
 *
 * A message that the broker returned as unroutable is confirmed too; it counts as failed, not as
 * done.
 */
#ifndef COMMON_RABBIT_CONFIRM_H
#define COMMON_RABBIT_CONFIRM_H

#include <stddef.h>
#include <stdint.h>

struct confirm_window;

enum confirm_result {
	CONFIRM_DONE,     /* the broker has confirmed it */
	CONFIRM_NACKED,   /* the broker refused it */
	CONFIRM_RETURNED, /* no queue took it */
	CONFIRM_LOST      /* the channel ended before the broker answered */
};

/*
 * Called once for every message, in the order of their tags within one call. It must not touch the
 * window.
 */
typedef void confirm_fn(void *context, void *item, enum confirm_result result);

struct confirm_window *confirm_new(confirm_fn *done, void *context);
void confirm_free(struct confirm_window *window); /* open messages are forgotten without a call */

/*
 * `item` was published as the channel's next message; returns its tag (the first of a channel is
 * 1).
 */
uint64_t confirm_push(struct confirm_window *window, void *item);

/* basic.ack and basic.nack. 0, or -1 when the tag was never given out or is settled already. */
int confirm_settle(struct confirm_window *window, uint64_t tag, int multiple,
		   enum confirm_result result);

/*
 * basic.return: the open message for which `same` returns true will end as CONFIRM_RETURNED. 0, or
 * -1 when there is none.
 */
int confirm_return(struct confirm_window *window, int (*same)(const void *item, const void *wanted),
		   const void *wanted);

/* The same by the message's tag. */
int confirm_return_tag(struct confirm_window *window, uint64_t tag);

/* The channel has ended: every open message ends as CONFIRM_LOST, and tags start at 1 again. */
void confirm_reset(struct confirm_window *window);

size_t confirm_open(const struct confirm_window *window); /* messages not yet settled */

#endif
