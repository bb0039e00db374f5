/*
 * The bytes of one connection, plain or under TLS, without waiting; of servers and of clients.
 * OpenSSL reads from and writes to memory: each read is one recv() of what is there, all of which
 * is decrypted at once, and each write one send() of what was encrypted, so that nothing that was
 * received is left where no poll sees it. One thread of a process.
 */
#pragma once

#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <stddef.h>
#include <sys/types.h>

#define STREAM_READ_BYTES 16384
#define STREAM_RECORD_BYTES 16384 /* a record that was received in part before */
#define STREAM_BYTES (STREAM_READ_BYTES + STREAM_RECORD_BYTES)

struct stream {
	int fd;
	SSL *session;            /* NULL: plain */
	struct evbuffer *sealed; /* encrypted, and not taken by the kernel; NULL: none ever was */
	struct evbuffer *early;  /* was received, and is to be read first; NULL: none */
	int records_n;           /* how many records of TLS the last read had */
};

void stream_init(struct stream *stream, int fd); /* takes the descriptor; plain */
void stream_secure(struct stream *stream,
		   SSL *session); /* takes the session; a handshake follows */
/* Tells the peer that no more is sent. Once all of the output is with the kernel. */
void stream_end(struct stream *stream);
/* Closes the descriptor. Under TLS it tells the peer, if the kernel takes that. */
void stream_close(struct stream *stream);

/* What was received before, and belongs to the stream. Before the first read. */
void stream_put_back(struct stream *stream, const void *bytes, size_t len);

/* Begins or goes on with the handshake: 1 when it is done, 0 when it waits for the peer, or -1. */
int stream_handshake(struct stream *stream);

/* Whether a read returns something that the socket does not show. */
int stream_is_ready(const struct stream *stream);
/*
 * Adds the event, which waits until the socket is readable; it is active at once if the stream
 * is ready.
 */
void stream_watch(const struct stream *stream, struct event *readable,
		  const struct timeval *timeout);

/*
 * Receives at most `most` bytes, at most STREAM_READ_BYTES, off the socket, and returns how many
 * bytes that made. 0: the peer sends no more; -1 with errno, EAGAIN where there are none yet.
 */
ssize_t stream_read(struct stream *stream, char bytes[STREAM_BYTES], size_t most);

/* As send(): returns how many bytes were taken. With 0 bytes it sends what was taken before. */
ssize_t stream_send(struct stream *stream, const char *bytes, size_t len);

/* Removes from `output` what it has taken. 0, or -1: the connection is broken. */
int stream_write(struct stream *stream, struct evbuffer *output);

/* Beside what is in `output`: bytes that were taken and are not in the kernel yet. */
size_t stream_unsent(const struct stream *stream);
/* What it holds in memory: the same, and a record that has not arrived completely. */
size_t stream_held(const struct stream *stream);
