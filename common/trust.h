/*
 * Which certificates the programs accept from RabbitMQ, Redis and the gateway: one that a trusted
 * authority has issued, that is valid now, and that is for the host of the URL. TLS 1.2 or later.
 * What failed is kept for the thread whose call it was, so that a log line can tell it.
 */
#pragma once

#include "common/program/key_file.h"

#include <openssl/ssl.h>
#include <stddef.h>

#define TRUST_ERROR_SIZE 256

#define TRUST_BYTES_MAX 1048576 /* of a file in PEM */

enum trust_store { TRUST_REDIS, TRUST_RABBITMQ, TRUST_GATEWAY, TRUST_WEBHOOK };

/*
 * A callback for OpenSSL, which would ask the terminal for the pass phrase of a file in PEM, and
 * block: says that there is none. `asked`, an int or NULL, becomes 1.
 */
int trust_pass_refuse(char *buffer, int size, int is_written, void *asked);

/* The certificates of a file in PEM, at least one, or NULL with what is wrong with the file. */
STACK_OF(X509) * trust_certificates_read(const char *path, char wrong[KEY_FILE_WRONG_SIZE]);

/* The seconds until then, of a time in a certificate; below 0: it has passed. */
int64_t trust_until_s(const ASN1_TIME *time);

/*
 * Sets the file with the certificates of the authorities for this store; "": the system's are used.
 * To be called before the first connection and before other threads. `path` is copied.
 */
void trust_authorities_set(enum trust_store store, const char *path);

/*
 * Prepares the context of one connection to this host, a name or an address. The file is read each
 * time, so that a new one counts from the next connection on. 0, or -1 with a sentence.
 */
int trust_context_set(SSL_CTX *context, enum trust_store store, const char *host,
		      char error[TRUST_ERROR_SIZE]);
/* Whether the certificates can be read. 0, or -1 with a sentence. */
int trust_check(enum trust_store store, char error[TRUST_ERROR_SIZE]);

/*
 * Before a call that may read or write a TLS connection: forgets the errors of this thread. OpenSSL
 * would take those that another user of it has left for errors of that call. librabbitmq does the
 * same by itself, but for the handshake.
 */
void trust_begin(void);
/*
 * What OpenSSL found wrong in this thread's last call, for instance `certificate "/CN=mq" refused:
 * certificate has expired`; "": nothing. Valid until the next call of this thread.
 */
const char *trust_why(void);
