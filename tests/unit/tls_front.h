/*
 * Servers with TLS for tests of clients: certificates of any kind, and a front that takes TLS away
 * and passes everything on to a server without.
 */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRONT_CONNECTIONS_MAX 16
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

struct front {
	int listener, port, behind; /* the port of the server without TLS; 0: none */
	SSL_CTX *context;
	pthread_t thread, threads[FRONT_CONNECTIONS_MAX];
	int connections; /* of the front's thread, until that has ended */
	atomic_int stop;
	atomic_int handshakes; /* that were completed */
};

struct front_connection {
	struct front *front;
	int fd;
};

static int behind_connect(const struct front *front)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)front->behind),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = front->behind ? socket(AF_INET, SOCK_STREAM, 0) : -1;

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Passes bytes on until either side ends. */
static void front_pass(struct front *front, SSL *ssl, int behind)
{
	struct pollfd fds[] = { { .fd = SSL_get_fd(ssl), .events = POLLIN },
				{ .fd = behind, .events = POLLIN } };
	char bytes[65536];

	while (!front->stop) {
		int n;

		if (!SSL_pending(ssl) && poll(fds, 2, 20) <= 0)
			continue;
		if (SSL_pending(ssl) || fds[0].revents) {
			n = SSL_read(ssl, bytes, sizeof(bytes));
			if (n <= 0 || send(behind, bytes, (size_t)n, MSG_NOSIGNAL) != n)
				return;
		}
		if (fds[1].revents) {
			n = (int)recv(behind, bytes, sizeof(bytes), MSG_DONTWAIT);
			if (n <= 0 || SSL_write(ssl, bytes, n) != n)
				return;
		}
		fds[0].revents = fds[1].revents = 0;
	}
}

static void *front_serve(void *data)
{
	struct front_connection *connection = data;
	struct front *front = connection->front;
	SSL *ssl = SSL_new(front->context);
	int behind = -1;

	SSL_set_fd(ssl, connection->fd);
	if (SSL_accept(ssl) == 1) {
		atomic_fetch_add(&front->handshakes, 1);
		behind = behind_connect(front);
		if (behind >= 0)
			front_pass(front, ssl, behind);
		SSL_shutdown(ssl);
	}
	ERR_clear_error();
	if (behind >= 0)
		close(behind);
	SSL_free(ssl);
	close(connection->fd);
	free(connection);
	return NULL;
}

static void *front_run(void *data)
{
	struct front *front = data;

	while (!front->stop && front->connections < FRONT_CONNECTIONS_MAX) {
		struct pollfd pollfd = { .fd = front->listener, .events = POLLIN };
		struct front_connection *connection;

		if (poll(&pollfd, 1, 20) <= 0)
			continue;
		connection = calloc(1, sizeof(*connection));
		connection->front = front;
		connection->fd = accept(front->listener, NULL, NULL);
		if (connection->fd < 0 || pthread_create(&front->threads[front->connections++],
							 NULL, front_serve, connection))
			abort();
	}
	return NULL;
}

/* `most` is the highest version of TLS that it speaks; 0: any. */
static void front_start(struct front *front, const struct identity *identity, int behind, int most)
{
	memset(front, 0, sizeof(*front));
	front->behind = behind;
	front->context = SSL_CTX_new(TLS_server_method());
	if (most) { /* versions that OpenSSL forbids by default */
		SSL_CTX_set_cipher_list(front->context, "DEFAULT@SECLEVEL=0");
		SSL_CTX_set_min_proto_version(front->context, 0);
		SSL_CTX_set_max_proto_version(front->context, most);
	}
	if (!SSL_CTX_use_certificate(front->context, identity->certificate) ||
	    !SSL_CTX_use_PrivateKey(front->context, identity->key))
		abort();
	front->listener = port_listen(&front->port);
	if (pthread_create(&front->thread, NULL, front_run, front))
		abort();
}

static void front_stop(struct front *front)
{
	front->stop = 1;
	pthread_join(front->thread, NULL);
	for (int i = 0; i < front->connections; i++)
		pthread_join(front->threads[i], NULL);
	close(front->listener);
	SSL_CTX_free(front->context);
}
