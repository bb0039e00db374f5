#include "common/trust.h"

#include "common/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUBJECT_SIZE 48 /* errors of hiredis have 127 bytes */

static const char *const settings[] = { [TRUST_REDIS] = "COUPON_REDIS_CA",
					[TRUST_RABBITMQ] = "COUPON_AMQP_CA",
					[TRUST_GATEWAY] = "COUPON_TLS_CA",
					[TRUST_WEBHOOK] = "COUPON_WEBHOOK_CA" };
static char *paths[TRUST_WEBHOOK + 1];

/* The certificate that this thread has refused last, and the sentence about any other error. */
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

int trust_pass_refuse(char *buffer, int size, int is_written, void *asked)
{
	(void)buffer, (void)size, (void)is_written;
	if (asked)
		*(int *)asked = 1;
	return -1;
}

STACK_OF(X509) * trust_certificates_read(const char *path, char wrong[KEY_FILE_WRONG_SIZE])
{
	STACK_OF(X509) *all = checked(sk_X509_new_null());
	struct key_file file;
	const char *reason;
	X509 *one;
	BIO *bio;

	if (key_file_load(&file, path, TRUST_BYTES_MAX, wrong)) {
		sk_X509_free(all);
		return NULL;
	}
	ERR_clear_error();
	bio = checked(BIO_new_mem_buf(file.text, (int)file.len));
	while ((one = PEM_read_bio_X509_AUX(bio, NULL, trust_pass_refuse, NULL)) != NULL)
		check(sk_X509_push(all, one) > 0);
	BIO_free(bio);
	key_file_wipe(&file);
	if (sk_X509_num(all) == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
		reason = ERR_reason_error_string(ERR_peek_error());
		snprintf(wrong, KEY_FILE_WRONG_SIZE, "it has no certificate that can be used: %s",
			 reason ? reason : "OpenSSL gave no reason");
		sk_X509_pop_free(all, X509_free);
		all = NULL;
	}
	ERR_clear_error();
	return all;
}

int64_t trust_until_s(const ASN1_TIME *time)
{
	int days, seconds;

	return ASN1_TIME_diff(&days, &seconds, NULL, time) == 1 ? (int64_t)days * 86400 + seconds
								: 0;
}

/* Without a setting it reads OpenSSL's own file and folder, which may be absent. */
static int authorities_read(SSL_CTX *context, enum trust_store store, char error[TRUST_ERROR_SIZE])
{
	const char *path = paths[store], *system = getenv(X509_get_default_cert_file_env());
	X509_STORE *authorities = SSL_CTX_get_cert_store(context);
	char wrong[KEY_FILE_WRONG_SIZE];
	STACK_OF(X509) *all = NULL;

	if (!path) {
		check(SSL_CTX_set_default_verify_dir(context) == 1);
		system = system ? system : X509_get_default_cert_file();
		if (access(system, F_OK))
			return 0;
	}
	all = trust_certificates_read(path ? path : system, wrong);
	if (!all) {
		snprintf(error, TRUST_ERROR_SIZE,
			 "%s: no certificates can be read from %.100s: %.100s", settings[store],
			 path ? path : system, wrong);
		return -1;
	}
	for (int i = 0; i < sk_X509_num(all); i++)
		check(X509_STORE_add_cert(authorities, sk_X509_value(all, i)) == 1);
	sk_X509_pop_free(all, X509_free);
	return 0;
}

int trust_context_set(SSL_CTX *context, enum trust_store store, const char *host,
		      char error[TRUST_ERROR_SIZE])
{
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
	struct in6_addr address;
	int is_set;

	/* An address is compared with a certificate's addresses only, a name with its names. */
	if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1) {
		is_set = X509_VERIFY_PARAM_set1_ip_asc(param, host);
	} else {
		X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
							       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
		/* No name at all would mean any. */
		is_set = *host && X509_VERIFY_PARAM_set1_host(param, host, 0);
	}
	if (!SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) || !is_set) {
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
