#include "common/trust.h"

#include "common/check.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUBJECT_SIZE 48 /* errors of hiredis have 127 bytes */

static const char *const settings[] = { [TRUST_REDIS] = "COUPON_REDIS_CA",
					[TRUST_RABBITMQ] = "COUPON_AMQP_CA",
					[TRUST_GATEWAY] = "COUPON_TLS_CA" };
static char *paths[TRUST_GATEWAY + 1];

/* Of the thread: the certificate that was refused last, and the sentence about any other error. */
static _Thread_local char refusal[TRUST_ERROR_SIZE], sentence[TRUST_ERROR_SIZE];

void trust_authorities_set(enum trust_store store, const char *path)
{
	free(paths[store]);
	paths[store] = *path ? checked(strdup(path)) : NULL;
}

void trust_begin(void)
{
	refusal[0] = '\0';
	ERR_clear_error();
}

static int is_refusal(unsigned long code)
{
	return ERR_GET_LIB(code) == ERR_LIB_SSL &&
	       ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED;
}

const char *trust_why(void)
{
	unsigned long code = ERR_peek_error(); /* the first one is the cause */
	const char *reason = ERR_reason_error_string(code);

	if (!code)
		return "";
	if (*refusal && (is_refusal(code) || is_refusal(ERR_peek_last_error())))
		return refusal;
	snprintf(sentence, sizeof(sentence), "TLS: %s", reason ? reason : "error of the system");
	return sentence;
}

/* Called for each certificate of the chain that is wrong. It decides nothing. */
static int on_verified(int is_good, X509_STORE_CTX *chain)
{
	X509 *certificate = X509_STORE_CTX_get_current_cert(chain);
	char subject[SUBJECT_SIZE] = "";

	if (is_good)
		return 1;
	if (certificate) /* it escapes what is not printable */
		X509_NAME_oneline(X509_get_subject_name(certificate), subject, SUBJECT_SIZE);
	snprintf(refusal, sizeof(refusal), "certificate \"%s\" refused: %s", subject,
		 X509_verify_cert_error_string(X509_STORE_CTX_get_error(chain)));
	return 0;
}

static int authorities_read(SSL_CTX *context, enum trust_store store, char error[TRUST_ERROR_SIZE])
{
	const char *path = paths[store];

	if (path ? SSL_CTX_load_verify_file(context, path)
		 : SSL_CTX_set_default_verify_paths(context))
		return 0;
	snprintf(error, TRUST_ERROR_SIZE, "%s: no certificates can be read from %s",
		 settings[store], path ? path : "the system's");
	ERR_clear_error();
	return -1;
}

/* OpenSSL compares an address with the addresses of a certificate only, a name with its names. */
static int host_set(X509_VERIFY_PARAM *param, const char *host)
{
	struct in6_addr address;

	if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, host);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	/* No name at all would mean any. */
	return *host && X509_VERIFY_PARAM_set1_host(param, host, 0);
}

int trust_context_set(SSL_CTX *context, enum trust_store store, const char *host,
		      char error[TRUST_ERROR_SIZE])
{
	if (!SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) ||
	    !host_set(SSL_CTX_get0_param(context), host)) {
		snprintf(error, TRUST_ERROR_SIZE, "TLS to %s cannot be prepared", host);
		ERR_clear_error();
		return -1;
	}
	/* A handshake in mid-connection would make a write wait for input. */
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, on_verified);
	return authorities_read(context, store, error);
}

int trust_check(enum trust_store store, char error[TRUST_ERROR_SIZE])
{
	SSL_CTX *context = checked(SSL_CTX_new(TLS_client_method()));
	int rc = authorities_read(context, store, error);

	SSL_CTX_free(context);
	return rc;
}
