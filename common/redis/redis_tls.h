/*
 * TLS of connections to Redis, by the library hiredis_ssl, which Debian 12 does not have, and how a
 * connection that blocks is opened. The certificate is verified by common/trust.h: hiredis itself
 * compares no host name.
 */
#pragma once

#include "common/trust.h"

#include <hiredis/hiredis.h>

/* Whether this build has it. Without it nothing may ask for TLS. */
int redis_has_tls(void);

/*
 * Begins TLS on a connection that does not block, and is just connected. The handshake continues
 * when it is read and written; its failure is an error of the connection. 0, or -1 with a sentence:
 * the connection is of no use then.
 */
int redis_tls_begin(redisContext *connection, const char *host, char error[TRUST_ERROR_SIZE]);

/*
 * Opens a connection that blocks, with TLS if `is_tls` is set, and closes it in child processes
 * (FD_CLOEXEC). `timeout_ms` limits the handshake of TLS, and then the wait for each reply. NULL
 * with a sentence.
 */
redisContext *redis_connect(const char *host, int port, int is_tls, int connect_ms, int timeout_ms,
			    char error[TRUST_ERROR_SIZE]);
