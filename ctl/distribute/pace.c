#include "ctl/distribute/pace.h"

#define BURST_US 10000 /* what was missed is made up for, but for no longer than this */

void pace_init(struct pace *pace, int64_t rate)
{
	*pace = (struct pace){ .step_us = rate ? 1e6 / (double)rate : 0 };
}

uint32_t pace_room(struct pace *pace, int64_t now_us, uint32_t n)
{
	double room;

	if (pace->step_us == 0)
		return n;
	if (pace->due_us < (double)(now_us - BURST_US))
		pace->due_us = (double)(now_us - BURST_US);
	if (pace->due_us > (double)now_us)
		return 0;
	room = ((double)now_us - pace->due_us) / pace->step_us + 1;
	return room < (double)n ? (uint32_t)room : n;
}

void pace_sent(struct pace *pace, uint32_t n)
{
	pace->due_us += pace->step_us * (double)n;
}

int64_t pace_wait_us(const struct pace *pace, int64_t now_us)
{
	double left_us = pace->due_us - (double)now_us;

	return pace->step_us > 0 && left_us > 0 ? (int64_t)left_us + 1 : 0;
}
