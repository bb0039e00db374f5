#include "common/serve/tls.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/program/key_file.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 1000
#define WHY_SIZE 512
#define TICKET_KEYS_BYTES 80 /* of SSL_CTX_set_tlsext_ticket_keys() */
#define SECRET_BYTES 32
#define FORBIDDEN_MODE (S_IWGRP | S_IRWXO) /* of a file with a key */
/*
 * Clients of 1.2: forward secrecy and authenticated encryption, as in Mozilla's "intermediate"
 * configuration; with 1.3 OpenSSL has no others.
 */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!PSK"

enum file { FILE_CERT, FILE_KEY, FILE_CLIENT_CA, FILES_N };

struct tls {
	const char *paths[FILES_N]; /* "": none */
	int min_version;
	struct key_file_stamp seen[FILES_N]; /* when they were last loaded, or could not be */
	SSL_CTX *context;
	int64_t look_ms;
	char why[WHY_SIZE]; /* the files could not be used; "": they could */
};

/* Makes the keys of tickets; the same in all processes that were forked after it was made. */
static unsigned char ticket_secret[SECRET_BYTES];

const char *tls_error(void)
{
	unsigned long code = ERR_get_error();
	const char *text = ERR_reason_error_string(code);

	ERR_clear_error();
	return code == 0 ? "no reason is known" : text ? text : "an error of the system";
}

static int fail(struct tls *tls, enum file file, const char *why)
{
	static const char *const settings[] = { "COUPON_TLS_CERT", "COUPON_TLS_KEY",
						"COUPON_TLS_CLIENT_CA" };

	snprintf(tls->why, sizeof(tls->why), "%s is \"%s\": %s", settings[file], tls->paths[file],
		 why);
	return -1;
}

/* Something in it cannot be used: what, and OpenSSL's reason. */
static int fail_of(struct tls *tls, enum file file, const char *what)
{
	char why[WHY_SIZE / 2];

	snprintf(why, sizeof(why), "it has no %s that can be used: %s", what, tls_error());
	return fail(tls, file, why);
}

/* Whether each can be read, and the key by few. */
static int files_check(struct tls *tls)
{
	struct stat status;

	for (int i = 0; i < FILES_N; i++)
		if (*tls->paths[i] && access(tls->paths[i], R_OK))
			return fail(tls, (enum file)i, strerror(errno));
	if (stat(tls->paths[FILE_KEY], &status))
		return fail(tls, FILE_KEY, strerror(errno));
	if (status.st_mode & FORBIDDEN_MODE)
		return fail(tls, FILE_KEY, KEY_FILE_OTHERS);
	return 0;
}

static int on_alpn(SSL *session, const unsigned char **out, unsigned char *out_len,
		   const unsigned char *in, unsigned in_len, void *context)
{
	const char *protocol = SSL_get_app_data(session);
	size_t len = strlen(protocol);

	(void)context;
	for (unsigned i = 0; i < in_len; i += 1U + in[i]) {
		if (in[i] != len || memcmp(in + i + 1, protocol, len) != 0)
			continue;
		*out = in + i + 1;
		*out_len = in[i];
		return SSL_TLSEXT_ERR_OK;
	}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* From the secret and what the files have. */
static void ticket_keys_set(SSL_CTX *context, X509_STORE *clients)
{
	unsigned char keys[TICKET_KEYS_BYTES], digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *hash = checked(EVP_MD_CTX_new());
	STACK_OF(X509_OBJECT) *objects = clients ? X509_STORE_get0_objects(clients) : NULL;
	unsigned len;

	check(EVP_DigestInit_ex(hash, EVP_shake256(), NULL) == 1);
	EVP_DigestUpdate(hash, ticket_secret, sizeof(ticket_secret));
	check(X509_digest(SSL_CTX_get0_certificate(context), EVP_sha256(), digest, &len) == 1);
	EVP_DigestUpdate(hash, digest, len);
	for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
		const X509 *one = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));

		if (one && X509_digest(one, EVP_sha256(), digest, &len) == 1)
			EVP_DigestUpdate(hash, digest, len);
	}
	check(EVP_DigestFinalXOF(hash, keys, sizeof(keys)) == 1);
	check(SSL_CTX_set_tlsext_ticket_keys(context, keys, sizeof(keys)) == 1);
	OPENSSL_cleanse(keys, sizeof(keys));
	EVP_MD_CTX_free(hash);
}

static int clients_set(struct tls *tls, SSL_CTX *context)
{
	const char *path = tls->paths[FILE_CLIENT_CA];
	STACK_OF(X509_NAME) * names;

	if (!*path)
		return 0;
	names = SSL_load_client_CA_file(path);
	if (!names || SSL_CTX_load_verify_file(context, path) != 1) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return fail_of(tls, FILE_CLIENT_CA, "certificate of a CA");
	}
	SSL_CTX_set_client_CA_list(context, names);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL); /* of those that send one */
	return 0;
}

static int files_read(struct tls *tls, SSL_CTX *context)
{
	if (files_check(tls))
		return -1;
	if (SSL_CTX_use_certificate_chain_file(context, tls->paths[FILE_CERT]) != 1)
		return fail_of(tls, FILE_CERT, "certificate");
	if (SSL_CTX_use_PrivateKey_file(context, tls->paths[FILE_KEY], SSL_FILETYPE_PEM) != 1)
		return fail_of(tls, FILE_KEY, "key of that certificate");
	return clients_set(tls, context);
}

/* NULL: tls->why. */
static SSL_CTX *context_new(struct tls *tls)
{
	static const unsigned char id[] = "couponmq";
	SSL_CTX *context = checked(SSL_CTX_new(TLS_server_method()));

	ERR_clear_error();
	if (files_read(tls, context)) {
		SSL_CTX_free(context);
		return NULL;
	}
	SSL_CTX_set_min_proto_version(context, tls->min_version);
	check(SSL_CTX_set_cipher_list(context, CIPHERS) == 1);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
					     SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_COMPRESSION);
	/* A connection at rest has no buffers; a piece of output may be moved until it is sent. */
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* there are tickets */
	SSL_CTX_set_num_tickets(context, 1);
	check(SSL_CTX_set_session_id_context(context, id, sizeof(id) - 1) == 1);
	SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
	ticket_keys_set(context,
			*tls->paths[FILE_CLIENT_CA] ? SSL_CTX_get_cert_store(context) : NULL);
	return context;
}

static int64_t until_s(const ASN1_TIME *time)
{
	int days, seconds;

	return ASN1_TIME_diff(&days, &seconds, NULL, time) == 1 ? (int64_t)days * 86400 + seconds
								: 0;
}

/* Why the certificate is not valid now, or NULL. */
static const char *invalid_why(const SSL_CTX *context)
{
	const X509 *certificate = SSL_CTX_get0_certificate(context);

	if (until_s(X509_get0_notAfter(certificate)) <= 0)
		return "the certificate has expired";
	if (until_s(X509_get0_notBefore(certificate)) > 0)
		return "the certificate is not valid yet";
	return NULL;
}

static void files_look(const struct tls *tls, struct key_file_stamp files[FILES_N])
{
	for (int i = 0; i < FILES_N; i++)
		files[i] = key_file_stamp(tls->paths[i]);
}

/* is_again: nothing has changed but perhaps the reason, for instance that descriptors were out. */
static void load(struct tls *tls, int is_again)
{
	char before[sizeof(tls->why)];
	const char *invalid;
	SSL_CTX *context;

	memcpy(before, tls->why, sizeof(before));
	files_look(tls, tls->seen); /* before they are read: a change meanwhile is seen later */
	context = context_new(tls);
	invalid = context ? invalid_why(context) : NULL;
	if (context && invalid)
		fail(tls, FILE_CERT, invalid);
	if (!context || invalid) {
		if (!is_again || strcmp(tls->why, before) != 0)
			log_error("tls_not_loaded", LOG_S("error", tls->why));
		SSL_CTX_free(context);
		return;
	}
	SSL_CTX_free(tls->context); /* sessions have references of their own */
	tls->context = context;
	tls->why[0] = '\0';
	log_info("tls_loaded", LOG_I("expires_s", tls_expires_s(tls)));
}

void tls_reload(struct tls *tls)
{
	load(tls, 0);
}

void tls_tick(struct tls *tls, int64_t now_ms)
{
	struct key_file_stamp files[FILES_N];

	if (now_ms < tls->look_ms)
		return;
	tls->look_ms = now_ms + LOOK_MS;
	files_look(tls, files);
	if (memcmp(files, tls->seen, sizeof(files)) != 0)
		load(tls, 0);
	else if (*tls->why)
		load(tls, 1);
}

static int version_of(const char *text)
{
	return strcmp(text, "1.2") == 0   ? TLS1_2_VERSION
	       : strcmp(text, "1.3") == 0 ? TLS1_3_VERSION
					  : 0;
}

struct tls *tls_new(const struct config *config)
{
	struct tls *tls;

	if (!*config->tls_cert)
		return NULL;
	tls = checked(calloc(1, sizeof(*tls)));
	tls->paths[FILE_CERT] = config->tls_cert;
	tls->paths[FILE_KEY] = config->tls_key;
	tls->paths[FILE_CLIENT_CA] = config->tls_client_ca;
	tls->min_version = version_of(config->tls_min);
	files_look(tls, tls->seen);
	tls->context = context_new(tls);
	if (!tls->context)
		log_fatal("%s", tls->why);
	return tls;
}

void tls_free(struct tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->context);
	free(tls);
}

void tls_check(const struct config *config)
{
	struct tls *tls;

	if (version_of(config->tls_min) == 0)
		log_fatal("COUPON_TLS_MIN is \"%s\": allowed are 1.2 and 1.3", config->tls_min);
	if (!*config->tls_cert != !*config->tls_key)
		log_fatal(
			"COUPON_TLS_CERT is \"%s\" and COUPON_TLS_KEY is \"%s\": allowed are both "
			"or none",
			config->tls_cert, config->tls_key);
	if (*config->tls_client_ca && !*config->tls_cert)
		log_fatal("COUPON_TLS_CLIENT_CA is \"%s\": it needs COUPON_TLS_CERT",
			  config->tls_client_ca);
	randombytes_buf(ticket_secret, sizeof(ticket_secret));
	tls = tls_new(config);
	if (tls && tls_trouble(tls))
		log_warn("tls_certificate", LOG_S("error", tls_trouble(tls)));
	tls_free(tls);
}

SSL *tls_session_new(const struct tls *tls, const char *protocol)
{
	SSL *session = checked(SSL_new(tls->context));

	SSL_set_app_data(session, (void *)(uintptr_t)protocol);
	SSL_set_accept_state(session);
	return session;
}

int64_t tls_expires_s(const struct tls *tls)
{
	return until_s(X509_get0_notAfter(SSL_CTX_get0_certificate(tls->context)));
}

const char *tls_trouble(const struct tls *tls)
{
	return *tls->why ? tls->why : invalid_why(tls->context);
}
