/*
 * Where webhooks may be sent to, by the settings: checks a URL before it is stored and before each
 * request, and the address that a request connects to. Addresses that are not reachable from the
 * whole Internet are refused: with them, whoever chooses a URL would make requests from inside.
 */
#pragma once

#include "common/program/config.h"
#include "common/serve/network.h"

struct rules {
	int is_http_allowed; /* else only https */
	struct networks networks;
	int64_t timeout_ms;
};

/*
 * A wrong setting ends the process with a sentence. Before other threads: COUPON_WEBHOOK_CA is kept
 * for all (common/trust.h).
 */
void rules_read(struct rules *rules, const struct config *config);

/* NULL: allowed, also by a network that is; else the kind of address it is, as "private". */
const char *networks_refusal(const struct networks *allowed, const struct sockaddr *address);

/* As networks_refusal(), for an address in digits; NULL also if the text is not an address. */
const char *networks_refusal_text(const struct networks *allowed, const char *text);

#define URL_BYTES_MAX 2048
#define URL_WHY_SIZE 256

/*
 * 0, or -1 with the reason and what is allowed in `why`. A host that is a name is looked up when
 * something is sent; which address it has is checked then, each time.
 */
int url_check(const char *url, const struct rules *rules, char why[URL_WHY_SIZE]);
