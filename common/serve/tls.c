#include "common/serve/tls.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/program/key_file.h"
#include "common/trust.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 1000
#define WHY_SIZE 512
#define TICKET_KEYS_BYTES 80 /* SSL_CTX_set_tlsext_ticket_keys() takes so many */
#define SECRET_BYTES 32
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
	int is_invalid;     /* the certificate in use is not valid, which was told */
};

/* Makes the keys of tickets; the same in all processes that were forked after it was made. */
static unsigned char ticket_secret[SECRET_BYTES];

static int fail(struct tls *tls, enum file file, const char *why)
{
	static const char *const settings[] = { "COUPON_TLS_CERT", "COUPON_TLS_KEY",
						"COUPON_TLS_CLIENT_CA" };

	snprintf(tls->why, sizeof(tls->why), "%s is \"%s\": %s", settings[file], tls->paths[file],
		 why);
	return -1;
}

/* As fail(), for a file in which `what` cannot be used, with OpenSSL's last error. */
static int fail_of(struct tls *tls, enum file file, const char *what)
{
	unsigned long code = ERR_get_error();
	const char *text = ERR_reason_error_string(code);
	char why[WHY_SIZE / 2];

	ERR_clear_error();
	if (!text)
		text = code ? "an error of the system" : "no reason is known";
	snprintf(why, sizeof(why), "it has no %s that can be used: %s", what, text);
	return fail(tls, file, why);
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

/*
 * A ticket has the certificate of the client, but not those that lead to its CA, and OpenSSL looks
 * at none of them again: one that has expired would count for as long as the client comes back.
 */
static SSL_TICKET_RETURN on_ticket(SSL *session, SSL_SESSION *ticket, const unsigned char *name,
				   size_t name_len, SSL_TICKET_STATUS status, void *context)
{
	(void)session, (void)name, (void)name_len, (void)context;
	if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
		return SSL_TICKET_RETURN_IGNORE_RENEW;
	if (SSL_SESSION_get0_peer(ticket))
		return SSL_TICKET_RETURN_IGNORE_RENEW;
	return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

static int certificates_read(struct tls *tls, enum file file, STACK_OF(X509) * *all)
{
	char wrong[KEY_FILE_WRONG_SIZE];

	*all = trust_certificates_read(tls->paths[file], wrong);
	return *all ? 0 : fail(tls, file, wrong);
}

static int own_set(struct tls *tls, SSL_CTX *context)
{
	STACK_OF(X509) * chain;
	X509 *own;
	int is_good;

	if (certificates_read(tls, FILE_CERT, &chain))
		return -1;
	own = sk_X509_shift(chain); /* the certificates that lead to its CA follow */
	is_good = SSL_CTX_use_certificate(context, own) == 1 &&
		  SSL_CTX_set1_chain(context, chain) == 1;
	X509_free(own);
	sk_X509_pop_free(chain, X509_free);
	return is_good ? 0 : fail_of(tls, FILE_CERT, "certificate");
}

static int key_set(struct tls *tls, SSL_CTX *context)
{
	char wrong[KEY_FILE_WRONG_SIZE];
	struct key_file file;
	int is_asked = 0, is_good;
	EVP_PKEY *key;
	BIO *bio;

	if (key_file_load(&file, tls->paths[FILE_KEY], TRUST_BYTES_MAX, wrong))
		return fail(tls, FILE_KEY, wrong);
	if (!file.is_secret || file.is_writable) {
		key_file_wipe(&file);
		return fail(tls, FILE_KEY, KEY_FILE_OTHERS);
	}
	bio = checked(BIO_new_mem_buf(file.text, (int)file.len));
	key = PEM_read_bio_PrivateKey(bio, NULL, trust_pass_refuse, &is_asked);
	is_good = key && SSL_CTX_use_PrivateKey(context, key) == 1;
	EVP_PKEY_free(key);
	BIO_free(bio);
	key_file_wipe(&file);
	if (is_asked)
		return fail(tls, FILE_KEY,
			    "the key has a pass phrase: allowed is a key without one, in a file "
			    "that only its owner and group may read");
	return is_good ? 0 : fail_of(tls, FILE_KEY, "key of that certificate");
}

/* Makes a context from the files. NULL with tls->why. */
static SSL_CTX *context_new(struct tls *tls)
{
	static const unsigned char id[] = "couponmq";
	SSL_CTX *context = checked(SSL_CTX_new(TLS_server_method()));
	STACK_OF(X509) *clients = NULL;
	unsigned char keys[TICKET_KEYS_BYTES], digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *hash;
	unsigned len;

	ERR_clear_error();
	if (own_set(tls, context) || key_set(tls, context) ||
	    (*tls->paths[FILE_CLIENT_CA] && certificates_read(tls, FILE_CLIENT_CA, &clients))) {
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
	check(SSL_CTX_set_session_ticket_cb(context, NULL, on_ticket, NULL) == 1);
	if (clients)
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER,
				   NULL); /* verifies clients that send one */

	/* The keys of tickets follow from the secret and what the files have. */
	hash = checked(EVP_MD_CTX_new());
	check(EVP_DigestInit_ex(hash, EVP_shake256(), NULL) == 1);
	EVP_DigestUpdate(hash, ticket_secret, sizeof(ticket_secret));
	check(X509_digest(SSL_CTX_get0_certificate(context), EVP_sha256(), digest, &len) == 1);
	EVP_DigestUpdate(hash, digest, len);
	for (int i = 0; i < sk_X509_num(clients); i++) {
		X509 *one = sk_X509_value(clients, i);

		check(SSL_CTX_add_client_CA(context, one) == 1);
		check(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one) == 1);
		if (X509_digest(one, EVP_sha256(), digest, &len) == 1)
			EVP_DigestUpdate(hash, digest, len);
	}
	check(EVP_DigestFinalXOF(hash, keys, sizeof(keys)) == 1);
	check(SSL_CTX_set_tlsext_ticket_keys(context, keys, sizeof(keys)) == 1);
	OPENSSL_cleanse(keys, sizeof(keys));
	EVP_MD_CTX_free(hash);
	sk_X509_pop_free(clients, X509_free);
	return context;
}

/* Why the certificate is not valid now, or NULL. */
static const char *invalid_why(const SSL_CTX *context)
{
	const X509 *certificate = SSL_CTX_get0_certificate(context);

	if (trust_until_s(X509_get0_notAfter(certificate)) <= 0)
		return "the certificate has expired";
	if (trust_until_s(X509_get0_notBefore(certificate)) > 0)
		return "the certificate is not valid yet";
	return NULL;
}

static void files_look(const struct tls *tls, struct key_file_stamp files[FILES_N])
{
	for (int i = 0; i < FILES_N; i++)
		files[i] = key_file_stamp(tls->paths[i]);
}

/*
 * Loads the files. `is_again`: nothing has changed but perhaps the reason, for instance that
 * descriptors were out.
 */
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
	tls->is_invalid = 0;
	log_info("tls_loaded", LOG_I("expires_s", tls_expires_s(tls)));
}

void tls_reload(struct tls *tls)
{
	load(tls, 0);
}

void tls_tick(struct tls *tls, int64_t now_ms)
{
	struct key_file_stamp files[FILES_N];
	const char *invalid;

	if (now_ms < tls->look_ms)
		return;
	tls->look_ms = now_ms + LOOK_MS;
	files_look(tls, files);
	if (memcmp(files, tls->seen, sizeof(files)) != 0)
		load(tls, 0);
	else if (*tls->why)
		load(tls, 1);
	invalid = invalid_why(tls->context);
	if (invalid && !tls->is_invalid)
		log_error("tls_certificate", LOG_S("error", invalid));
	tls->is_invalid = invalid != NULL;
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
	tls->is_invalid = invalid_why(tls->context) != NULL; /* tls_check() tells it */
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

int tls_certificate_set(SSL_CTX *context, const struct config *config, char *why, size_t size)
{
	struct tls tls = { .paths = { config->tls_cert, config->tls_key, "" } };

	ERR_clear_error();
	if (own_set(&tls, context) == 0 && key_set(&tls, context) == 0)
		return 0;
	snprintf(why, size, "%s", tls.why);
	return -1;
}

int64_t tls_client_expires_s(const SSL *session)
{
	STACK_OF(X509) *chain = SSL_get0_verified_chain(session);
	int64_t least_s = sk_X509_num(chain) > 0 ? INT64_MAX : 0;

	for (int i = 0; i < sk_X509_num(chain); i++) {
		int64_t one_s = trust_until_s(X509_get0_notAfter(sk_X509_value(chain, i)));

		least_s = one_s < least_s ? one_s : least_s;
	}
	return least_s;
}

int64_t tls_expires_s(const struct tls *tls)
{
	return trust_until_s(X509_get0_notAfter(SSL_CTX_get0_certificate(tls->context)));
}

const char *tls_trouble(const struct tls *tls)
{
	return *tls->why ? tls->why : invalid_why(tls->context);
}
