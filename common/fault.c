#include "common/fault.h"

#ifdef COUPON_FAULTS

#include "common/log/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLEEP_US 100000

enum action { ACTION_NONE, ACTION_KILL, ACTION_STOP, ACTION_SLEEP };

struct plan {
	enum action action;
	unsigned at;
	atomic_uint times;
};

static const char *const names[FAULT_COUNT] = {
#define FAULT(name, text) [name] = text,
#include "common/fault_table.h"
#undef FAULT
};
static const char *const actions[] = { "none", "kill", "stop", "sleep" };
static struct plan plans[FAULT_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void plan_read(const char *text)
{
	char name[64], action[16], rest;
	unsigned at;

	if (sscanf(text, "%63[a-z_]:%u:%15[a-z]%c", name, &at, action, &rest) != 3 || at == 0)
		log_fatal("COUPON_FAULT has \"%s\": allowed is NAME:N:ACTION", text);
	for (int fault = 0; fault < FAULT_COUNT; fault++) {
		for (int i = ACTION_KILL; i <= ACTION_SLEEP; i++) {
			if (strcmp(names[fault], name) != 0 || strcmp(actions[i], action) != 0)
				continue;
			plans[fault].at = at;
			plans[fault].action = (enum action)i;
			return;
		}
	}
	log_fatal("COUPON_FAULT has \"%s\": the fault point or the action does not exist", text);
}

static void plans_read(void)
{
	const char *list = getenv("COUPON_FAULT");
	char *copy = strdup(list ? list : ""), *place, *text;

	for (text = copy ? strtok_r(copy, ",", &place) : NULL; text;
	     text = strtok_r(NULL, ",", &place))
		plan_read(text);
	free(copy);
}

/* The action to take at this point now. */
static enum action action_due(enum fault fault)
{
	struct plan *plan = &plans[fault];
	unsigned times;

	pthread_once(&once, plans_read);
	if (plan->action == ACTION_NONE)
		return ACTION_NONE;
	times = atomic_fetch_add(&plan->times, 1) + 1;
	if (times < plan->at || (times > plan->at && plan->action != ACTION_SLEEP))
		return ACTION_NONE;
	if (times == plan->at)
		dprintf(STDERR_FILENO, "fault: %s, time %u: %s\n", names[fault], times,
			actions[plan->action]);
	return plan->action;
}

void fault_point(enum fault fault)
{
	switch (action_due(fault)) {
	case ACTION_NONE:
		return;
	case ACTION_KILL:
		raise(SIGKILL);
		return;
	case ACTION_STOP:
		raise(SIGSTOP);
		return;
	case ACTION_SLEEP:
		usleep(SLEEP_US);
		return;
	}
}

void fault_point_half(enum fault fault, int fd, const void *data, size_t len)
{
	if (action_due(fault) != ACTION_KILL)
		return;
	if (write(fd, data, len / 2) >= 0)
		raise(SIGKILL);
	raise(SIGKILL);
}

#endif
