/* Where webhooks may be sent to, and how: by the settings. */
#ifndef WEBHOOK_RULES_H
#define WEBHOOK_RULES_H

#include "common/program/config.h"
#include "webhook/network.h"

struct rules {
	int is_http_allowed; /* else only https */
	struct networks networks;
	const char *ca_file; /* lent; "": those of the system */
	int64_t timeout_ms;
};

/* A wrong setting ends the process with a sentence. `config` must outlive the rules. */
void rules_read(struct rules *rules, const struct config *config);

#endif
