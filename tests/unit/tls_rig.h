/* Certificates and their keys in a folder of the test, and clients of TLS in memory. */
#pragma once

#include "common/check.h"
#include "common/log/log.h"
#include "common/program/config.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_S 86400

struct tls_rig {
	char folder[64];
	char cert[96], key[96], client_ca[96];
	struct config config;
};

static inline void rig_init(struct tls_rig *rig)
{
	log_init("test", LOG_LEVEL_ERROR, 0);
	strcpy(rig->folder, "/tmp/couponmq-tls-XXXXXX");
	check(mkdtemp(rig->folder) != NULL);
	snprintf(rig->cert, sizeof(rig->cert), "%s/cert.pem", rig->folder);
	snprintf(rig->key, sizeof(rig->key), "%s/key.pem", rig->folder);
	snprintf(rig->client_ca, sizeof(rig->client_ca), "%s/clients.pem", rig->folder);
	rig->config = (struct config){ .tls_cert = rig->cert,
				       .tls_key = rig->key,
				       .tls_client_ca = (char *)"",
				       .tls_min = (char *)"1.2" };
}

static inline void rig_fini(const struct tls_rig *rig)
{
	unlink(rig->cert);
	unlink(rig->key);
	unlink(rig->client_ca);
	check(rmdir(rig->folder) == 0);
}

static inline EVP_PKEY *rig_key_new(void)
{
	return checked(EVP_EC_gen("P-256"));
}

/* Self-signed, valid from and to these seconds from now. */
static inline X509 *rig_certificate_new(EVP_PKEY *key, const char *name, long from_s, long to_s)
{
	X509 *one = checked(X509_new());
	X509_NAME *subject = X509_get_subject_name(one);
	static long serial;

	ASN1_INTEGER_set(X509_get_serialNumber(one), ++serial);
	X509_set_version(one, 2);
	X509_gmtime_adj(X509_getm_notBefore(one), from_s);
	X509_gmtime_adj(X509_getm_notAfter(one), to_s);
	X509_set_pubkey(one, key);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
				   0);
	X509_set_issuer_name(one, subject);
	check(X509_sign(one, key, EVP_sha256()) > 0);
	return one;
}

static inline void rig_certificate_write(const char *path, X509 *one)
{
	FILE *file = checked(fopen(path, "w"));

	check(PEM_write_X509(file, one) == 1 && fclose(file) == 0);
}

static inline void rig_key_write(const char *path, EVP_PKEY *key)
{
	FILE *file = checked(fopen(path, "w"));

	check(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
	check(fclose(file) == 0 && chmod(path, 0600) == 0);
}

/* Writes a new pair. */
static inline void rig_pair_write(const struct tls_rig *rig, const char *name, long from_s,
				  long to_s)
{
	EVP_PKEY *key = rig_key_new();
	X509 *one = rig_certificate_new(key, name, from_s, to_s);

	rig_certificate_write(rig->cert, one);
	rig_key_write(rig->key, key);
	X509_free(one);
	EVP_PKEY_free(key);
}
