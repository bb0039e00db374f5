/* Decodes what issue.lua returns. */
#ifndef GATEWAY_ADMIT_SCRIPT_REPLY_H
#define GATEWAY_ADMIT_SCRIPT_REPLY_H

#include "gateway/admit/call.h"

#include <hiredis/hiredis.h>

/*
 * Decodes the reply to a call of `requests_n` requests; `body` is lent by the reply. 0, or -1 when
 * it is of another form.
 */
int script_reply_decode(const redisReply *reply, size_t requests_n, struct call_reply *decoded);

#endif
