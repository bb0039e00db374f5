#include "gateway/listen/http_output.h"

#include "common/check.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdint.h>
#include <sys/socket.h>

static int is_broken(ssize_t rc)
{
	return rc < 0 && errno != EAGAIN && errno != EINTR;
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
	struct http_output *output = data;
	int rc = is_broken(evbuffer_write(output->unsent, fd)) ? -1 : 0;

	(void)what;
	if (rc == 0 && evbuffer_get_length(output->unsent) > 0)
		return;
	event_del(output->writable);
	output->done(output->context, rc);
}

void http_output_init(struct http_output *output, struct event_base *base, int fd,
		      http_output_fn *done, void *context)
{
	*output = (struct http_output){ .fd = fd, .done = done, .context = context };
	output->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, output);
	output->unsent = evbuffer_new();
	check(output->writable && output->unsent);
}

void http_output_fini(struct http_output *output)
{
	event_free(output->writable);
	evbuffer_free(output->unsent);
}

int http_output_write(struct http_output *output, const struct iovec *pieces, size_t n)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = n };
	ssize_t rc = sendmsg(output->fd, &message, MSG_NOSIGNAL);
	size_t sent = rc > 0 ? (size_t)rc : 0;

	if (is_broken(rc))
		return -1;
	for (size_t i = 0; i < n; i++) {
		size_t skip = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;

		sent -= skip;
		if (skip < pieces[i].iov_len)
			evbuffer_add(output->unsent, (const char *)pieces[i].iov_base + skip,
				     pieces[i].iov_len - skip);
	}
	if (evbuffer_get_length(output->unsent) == 0)
		return 0;
	event_add(output->writable, NULL);
	return 1;
}

size_t http_output_length(const struct http_output *output)
{
	return evbuffer_get_length(output->unsent);
}
