/*
 * The identity of the client of a connection or of an HTTP request: an API key, the user of a
 * token, or nobody that is known. Embedded in the responder; the gate changes it.
 */
#pragma once

#include "common/keys.h"
#include "gateway/gate/token.h"

struct identity {
	struct key_grant grant;    /* .key NULL: no key */
	const struct token *token; /* held; NULL: none */
	int is_needed;             /* nobody that is known may do nothing */
};

void identity_forget(struct identity *identity);

/*
 * Whether it may know of this coupon: also of one that is found only later, by a code. By then a
 * connection may have presented something else.
 */
int identity_has_coupon(const struct identity *identity, int64_t coupon);
