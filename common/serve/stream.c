#include "common/serve/stream.h"

#include "common/check.h"

#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEALED_BYTES (4 * STREAM_RECORD_BYTES) /* for one handshake message, or a few records */

/* What OpenSSL reads and writes during one call, of whichever connection it is. */
static struct {
	const char *in; /* received, and not read */
	size_t in_len;
	char out[SEALED_BYTES]; /* written, and not sent */
	size_t out_len;
} wire;

static int wire_read(BIO *bio, char *bytes, int len)
{
	size_t n = (size_t)len < wire.in_len ? (size_t)len : wire.in_len;

	BIO_clear_retry_flags(bio);
	if (n == 0) {
		BIO_set_retry_read(bio);
		return -1;
	}
	memcpy(bytes, wire.in, n);
	wire.in += n;
	wire.in_len -= n;
	return (int)n;
}

/* It has room for what one call can write: a flight of the handshake, or a record. */
static int wire_write(BIO *bio, const char *bytes, int len)
{
	BIO_clear_retry_flags(bio);
	if ((size_t)len > sizeof(wire.out) - wire.out_len)
		return -1;
	memcpy(wire.out + wire.out_len, bytes, (size_t)len);
	wire.out_len += (size_t)len;
	return len;
}

static long wire_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

void stream_init(struct stream *stream, int fd)
{
	*stream = (struct stream){ .fd = fd };
}

void stream_secure(struct stream *stream, SSL *session)
{
	static BIO_METHOD *method;
	BIO *bio;

	if (!method) {
		method = checked(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire"));
		BIO_meth_set_read(method, wire_read);
		BIO_meth_set_write(method, wire_write);
		BIO_meth_set_ctrl(method, wire_control);
	}
	bio = checked(BIO_new(method));
	BIO_set_init(bio, 1);
	SSL_set_bio(session, bio, bio);
	stream->session = session;
}

size_t stream_unsent(const struct stream *stream)
{
	return stream->sealed ? evbuffer_get_length(stream->sealed) : 0;
}

size_t stream_held(const struct stream *stream)
{
	int is_partial = stream->session && SSL_has_pending(stream->session);

	return stream_unsent(stream) + (is_partial ? STREAM_RECORD_BYTES : 0);
}

static int is_broken(ssize_t rc)
{
	return rc < 0 && errno != EAGAIN && errno != EINTR;
}

/* Sends what was encrypted, and keeps what the kernel does not take. 0, or -1. */
static int wire_send(struct stream *stream)
{
	ssize_t n = 0;

	if (stream_unsent(stream) == 0 && wire.out_len > 0)
		n = send(stream->fd, wire.out, wire.out_len, MSG_NOSIGNAL);
	if (is_broken(n)) {
		wire.out_len = 0;
		return -1;
	}
	n = n > 0 ? n : 0;
	if ((size_t)n < wire.out_len) {
		if (!stream->sealed)
			stream->sealed = checked(evbuffer_new());
		check(evbuffer_add(stream->sealed, wire.out + n, wire.out_len - (size_t)n) == 0);
	}
	wire.out_len = 0;
	return 0;
}

/* Tells the peer under TLS, if the kernel takes that. */
static void session_end(struct stream *stream)
{
	wire.in_len = 0;
	if (SSL_is_init_finished(stream->session) && SSL_shutdown(stream->session) >= 0 &&
	    stream_unsent(stream) == 0)
		wire_send(stream);
	wire.out_len = 0;
	ERR_clear_error();
}

void stream_end(struct stream *stream)
{
	if (stream->session)
		session_end(stream);
	shutdown(stream->fd, SHUT_WR);
}

void stream_close(struct stream *stream)
{
	if (stream->session) {
		session_end(stream);
		SSL_free(stream->session);
		stream->session = NULL;
	}
	if (stream->sealed)
		evbuffer_free(stream->sealed);
	if (stream->early)
		evbuffer_free(stream->early);
	stream->sealed = stream->early = NULL;
	close(stream->fd);
}

/* Whether the peer has said under TLS that it sends no more. */
static int is_ended(const struct stream *stream)
{
	return stream->session && SSL_get_shutdown(stream->session) & SSL_RECEIVED_SHUTDOWN;
}

int stream_is_ready(const struct stream *stream)
{
	return stream->early || is_ended(stream);
}

void stream_watch(const struct stream *stream, struct event *readable,
		  const struct timeval *timeout)
{
	event_add(readable, timeout);
	if (stream_is_ready(stream))
		event_active(readable, EV_READ, 1);
}

void stream_put_back(struct stream *stream, const void *bytes, size_t len)
{
	if (len == 0)
		return;
	if (!stream->early)
		stream->early = checked(evbuffer_new());
	check(evbuffer_add(stream->early, bytes, len) == 0);
}

/* As recv(), after what was put back. */
static ssize_t bytes_receive(struct stream *stream, char *bytes, size_t most)
{
	ssize_t n;

	if (!stream->early)
		return recv(stream->fd, bytes, most, 0);
	n = evbuffer_remove(stream->early, bytes, most);
	if (evbuffer_get_length(stream->early) == 0) {
		evbuffer_free(stream->early);
		stream->early = NULL;
	}
	return n;
}

/* As bytes_receive(), for OpenSSL: notes what has arrived in `wire`. */
static ssize_t wire_receive(struct stream *stream, char *bytes, size_t most)
{
	ssize_t n = bytes_receive(stream, bytes, most);

	wire.in = bytes;
	wire.in_len = n > 0 ? (size_t)n : 0;
	return n;
}

static int wants_more(SSL *session, int rc)
{
	return SSL_get_error(session, rc) == SSL_ERROR_WANT_READ;
}

int stream_handshake(struct stream *stream)
{
	char bytes[STREAM_READ_BYTES];
	ssize_t n = wire_receive(stream, bytes, sizeof(bytes));
	int rc, result;

	if (n == 0 || is_broken(n))
		return -1;
	ERR_clear_error();
	rc = SSL_do_handshake(stream->session);
	result = rc == 1 ? 1 : wants_more(stream->session, rc) ? 0 : -1;
	if (result == 1) /* the rest is not of the handshake */
		stream_put_back(stream, wire.in, wire.in_len);
	wire.in_len = 0;
	return wire_send(stream) ? -1 : result; /* after a failure it tells the peer why */
}

ssize_t stream_read(struct stream *stream, char bytes[STREAM_BYTES], size_t most)
{
	char sealed[STREAM_READ_BYTES];
	size_t len = 0;
	ssize_t n;
	int rc;

	stream->records_n = 0;
	if (!stream->session)
		return bytes_receive(stream, bytes, most);
	if (is_ended(stream))
		return 0;
	n = wire_receive(stream, sealed, most);
	if (n <= 0)
		return n;

	/* Decrypt all that was received. */
	ERR_clear_error();
	do {
		rc = SSL_read(stream->session, bytes + len, (int)(STREAM_BYTES - len));
		len += rc > 0 ? (size_t)rc : 0;
		stream->records_n++;
	} while (rc > 0 && (wire.in_len > 0 || SSL_has_pending(stream->session)));
	wire.in_len = 0;
	if (len > 0) /* what is wrong after it is found again at the next read */
		return wire_send(stream) ? -1 : (ssize_t)len;
	if (SSL_get_error(stream->session, rc) == SSL_ERROR_ZERO_RETURN)
		return 0;
	errno = wants_more(stream->session, rc) ? EAGAIN : EPROTO;
	rc = errno;
	if (wire_send(stream) == 0)
		errno = rc;
	return -1;
}

ssize_t stream_send(struct stream *stream, const char *bytes, size_t len)
{
	size_t sent = 0, n;

	if (!stream->session)
		return send(stream->fd, bytes, len, MSG_NOSIGNAL);

	/* More is encrypted only when all that was encrypted before is in the kernel. */
	if (stream_unsent(stream) > 0 && is_broken(evbuffer_write(stream->sealed, stream->fd)))
		return -1;
	if (stream_unsent(stream) > 0 && len > 0) {
		errno = EAGAIN;
		return -1;
	}
	while (sent < len && stream_unsent(stream) == 0) {
		n = len - sent < STREAM_RECORD_BYTES ? len - sent : STREAM_RECORD_BYTES;
		ERR_clear_error();
		if (SSL_write(stream->session, bytes + sent, (int)n) != (int)n) {
			wire.out_len = 0;
			errno = EPROTO;
			return -1;
		}
		if (wire_send(stream))
			return -1;
		sent += n;
	}
	return (ssize_t)sent;
}

int stream_write(struct stream *stream, struct evbuffer *output)
{
	const char *bytes;
	size_t len;
	ssize_t n;

	if (!stream->session)
		return evbuffer_get_length(output) > 0 &&
				       is_broken(evbuffer_write(output, stream->fd))
			       ? -1
			       : 0;
	do {
		len = evbuffer_get_length(output);
		len = len < STREAM_RECORD_BYTES ? len : STREAM_RECORD_BYTES;
		bytes = "";
		if (len > 0)
			bytes = checked(evbuffer_pullup(output, (ev_ssize_t)len));
		n = stream_send(stream, bytes, len);
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		evbuffer_drain(output, (size_t)n);
	} while (n > 0);
	return 0;
}
