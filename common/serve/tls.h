/*
 * TLS of listeners: 1.2 or 1.3, with the certificate and the key of COUPON_TLS_CERT and
 * COUPON_TLS_KEY. The files are loaded anew when they change. What cannot be used, or is not valid
 * at that moment, leaves the former certificate in use, and is told. One thread.
 *
 * Sessions are resumed by tickets, at any process of a gateway and after a reload of the same
 * files; after a change of the files by none that was made before. Who shows a certificate resumes
 * none, so that it is verified for each connection.
 */
#pragma once

#include "common/program/config.h"

#include <openssl/ssl.h>

struct tls;

/*
 * Ends the process with a sentence unless the settings are none, or files that can be used. A
 * certificate that is not valid now is only logged: without one the process would serve nobody.
 * Before the fork of processes that resume each other's sessions.
 */
void tls_check(const struct config *config);

struct tls *tls_new(const struct config *config); /* NULL: no certificate is set */
void tls_free(struct tls *tls);                   /* NULL is allowed */

/*
 * A session of the server, with the certificate that is in use now. `protocol`, which is lent, is
 * the one that a client may select by ALPN; one that offers only others is refused.
 */
SSL *tls_session_new(const struct tls *tls, const char *protocol);

/* Looks at the files once a second, and loads them if they have changed. */
void tls_tick(struct tls *tls, int64_t now_ms);
void tls_reload(struct tls *tls); /* now, changed or not */

int64_t tls_expires_s(const struct tls *tls); /* until the certificate expires; below 0: it has */
/* Why the files are not in use, or the certificate is not valid; NULL: all is well. */
const char *tls_trouble(const struct tls *tls);

/*
 * Shows the certificate of the settings as a client. 0, or -1 with a sentence. For a context of one
 * connection: the files are read each time.
 */
int tls_certificate_set(SSL_CTX *context, const struct config *config, char *why, size_t size);

/*
 * Until the certificate that a client has shown, or one of those that lead to its CA, ends; 0 or
 * below: it has, or the client has shown none.
 */
int64_t tls_client_expires_s(const SSL *session);
