/* At most so many users a second, in steps of some milliseconds. No I/O. */
#ifndef CTL_DISTRIBUTE_PACE_H
#define CTL_DISTRIBUTE_PACE_H

#include <stdint.h>

struct pace {
	double step_us; /* from one user to the next; 0: no limit */
	double due_us;  /* when the next one is due */
};

void pace_init(struct pace *pace, int64_t rate); /* users a second; 0: no limit */

/* How many of `n` may be sent now. */
uint32_t pace_room(struct pace *pace, int64_t now_us, uint32_t n);
void pace_sent(struct pace *pace, uint32_t n);

/* How long until the next one is due; 0: it is. */
int64_t pace_wait_us(const struct pace *pace, int64_t now_us);

#endif
