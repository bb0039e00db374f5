/*
 * Looks at what does not agree until it does, or is certainly wrong, or cannot be decided. Two
 * reads of a running system are never of one moment, so a state counts when LOOKS consecutive looks
 * found it. A receive that is only overdue must stay so for as long as a hanging worker may hold
 * its message, which AMQP does not show: RabbitMQ takes the message back when there was no
 * heartbeat for twice RABBIT_HEARTBEAT_S.
 */
#ifndef CTL_AUDIT_WATCH_H
#define CTL_AUDIT_WATCH_H

#include "ctl/audit/pass.h"

void watch_run(struct pass *pass);

/* Whether a suspect is wrong, after watch_run(). */
int watch_found_wrong(const struct pass *pass, const struct suspect *suspect);

#endif
