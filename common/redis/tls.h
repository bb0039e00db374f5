/*
 * TLS of a connection to Redis, by the library hiredis_ssl, which Debian 12 does not have. The
 * certificate is verified by common/trust.h: hiredis itself compares no host name.
 */
#pragma once

#include "common/trust.h"

#include <hiredis/hiredis.h>

/* Whether this build has it. Without it neither of the others may be called. */
int redis_has_tls(void);

/*
 * Begins TLS on a connection that does not block, and is just connected. The handshake continues
 * when it is read and written; its failure is an error of the connection. 0, or -1 with a sentence:
 * the connection is of no use then.
 */
int redis_tls_begin(redisContext *connection, const char *host, char error[TRUST_ERROR_SIZE]);

/* Does the handshake on a connection that blocks, in this time. 0, or -1 with a sentence. */
int redis_tls_open(redisContext *connection, const char *host, int timeout_ms,
		   char error[TRUST_ERROR_SIZE]);
