/*
 * Which addresses a webhook may be sent to. Addresses that are not reachable from the whole
 * Internet are refused: with them, whoever chooses a URL would make requests from inside.
 */
#ifndef WEBHOOK_NETWORK_H
#define WEBHOOK_NETWORK_H

#include "common/serve/network.h"

/* NULL: allowed, also by a network that is; else the kind of address it is, as "private". */
const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address);

/* The same for an address in digits; NULL too if the text is none. */
const char *networks_refusal_text(const struct networks *allowed, const char *text);

#endif
