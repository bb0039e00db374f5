/* A front that takes TLS away and passes everything on to a server without. */
#pragma once

#include "tls_identity.h"

#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>

#define FRONT_CONNECTIONS_MAX 16

struct front {
	int listener, port, behind; /* the port of the server without TLS; 0: none */
	SSL_CTX *context;
	pthread_t thread, threads[FRONT_CONNECTIONS_MAX];
	int connections; /* of the front's thread, until that has ended */
	atomic_int stop;
	atomic_int handshakes; /* that were completed */
	atomic_int is_frozen;  /* it reads nothing */
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

		if (front->is_frozen) {
			usleep(20000);
			continue;
		}
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
