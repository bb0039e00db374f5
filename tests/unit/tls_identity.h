/* Certificates of any kind for servers of tests, and the files and sockets that they need. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DAY_S (24L * 60 * 60)

/* A certificate and its key. */
struct identity {
	X509 *certificate;
	EVP_PKEY *key;
};

/* What is to be in it; all else is as it should be. */
struct identity_terms {
	const char *name;      /* of the subject */
	const char *alternate; /* "DNS:…", "IP:…"; NULL: none */
	const struct identity *issuer;
	long from_s, until_s; /* from now; 0 and 0: from yesterday until tomorrow */
};

static void extension_add(X509 *certificate, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	if (!extension || !X509_add_ext(certificate, extension, -1))
		abort();
	X509_EXTENSION_free(extension);
}

/* Without an issuer it is an authority, which has issued itself. */
static struct identity identity_make(const struct identity_terms *terms)
{
	static atomic_long serial = 1;
	struct identity identity = { .certificate = X509_new(), .key = EVP_EC_gen("P-256") };
	const struct identity *issuer = terms->issuer ? terms->issuer : &identity;
	X509 *certificate = identity.certificate;

	X509_set_version(certificate, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), atomic_fetch_add(&serial, 1));
	X509_gmtime_adj(X509_getm_notBefore(certificate),
			terms->from_s || terms->until_s ? terms->from_s : -DAY_S);
	X509_gmtime_adj(X509_getm_notAfter(certificate),
			terms->from_s || terms->until_s ? terms->until_s : DAY_S);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
				   (const unsigned char *)terms->name, -1, -1, 0);
	X509_set_issuer_name(certificate, X509_get_subject_name(issuer->certificate));
	X509_set_pubkey(certificate, identity.key);
	if (!terms->issuer)
		extension_add(certificate, NID_basic_constraints, "critical,CA:TRUE");
	if (terms->alternate)
		extension_add(certificate, NID_subject_alt_name, terms->alternate);
	if (!X509_sign(certificate, issuer->key, EVP_sha256()))
		abort();
	return identity;
}

static void identity_free(struct identity *identity)
{
	X509_free(identity->certificate);
	EVP_PKEY_free(identity->key);
}

/* Writes the certificate to a new file, whose path replaces the XXXXXX. */
static void identity_write(const struct identity *identity, char *path)
{
	int fd = mkstemp(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file || !PEM_write_X509(file, identity->certificate) || fclose(file))
		abort();
}

/* A listening socket of loopback. */
static int port_listen(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 16) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		abort();
	*port = ntohs(address.sin_port);
	return fd;
}
