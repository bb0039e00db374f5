/*
 * AMQP_URL: the hosts of a cluster, with the user, the password and the vhost that all have; and
 * COUPON_RABBITMQ_API, the same for the management API.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Newer versions have them in a folder and warn about the old names; 0.11 has only those. */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#define RABBIT_URL_FORM                                                                     \
	"amqp://user:password@host:port/vhost, with host:port,host:port for a cluster, or " \
	"amqps://… with TLS"
#define RABBIT_ERROR_SIZE 1024 /* for a cluster it has what each host has answered */
#define RABBIT_API_FORM \
	"http://user:password@host:port, with host:port,host:port for a cluster, or https://…"
#define RABBIT_HOSTS_MAX 16
#define RABBIT_HOST_SIZE 280 /* of the text for people: a name has 253 characters at most */

struct rabbit_url {
	char *user, *password, *vhost; /* of all hosts; NULL: those of the library */
	size_t hosts_n;                /* at least one */
	struct rabbit_host {
		struct amqp_connection_info info; /* its texts are in `text`, and above */
		char *text;
	} hosts[RABBIT_HOSTS_MAX];
};

/*
 * 0, or -1 with a sentence in `error`, which has no part of the URL, since that has a password. To
 * be followed by rabbit_url_fini() in both cases.
 */
int rabbit_url_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE]);
/* Parses COUPON_RABBITMQ_API as rabbit_url_parse(); `info.vhost` has no meaning. */
int rabbit_api_parse(struct rabbit_url *url, const char *text, char error[RABBIT_ERROR_SIZE]);
void rabbit_url_fini(struct rabbit_url *url);

/* Puts the hosts in random order, so that the connections of many processes are spread. */
void rabbit_url_shuffle(struct rabbit_url *url);

/* host:port, or [address]:port. Returns `out`. */
char *rabbit_host_text(const struct rabbit_host *host, char out[RABBIT_HOST_SIZE]);
