#include "ctl/client/connection.h"

#include "common/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void client_connection_init(struct client_connection *c, size_t out_bytes)
{
	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->out = malloc(out_bytes);
	c->in = malloc(CLIENT_IN_BYTES);
	check(c->out != NULL && c->in != NULL);
}

void client_connection_fini(struct client_connection *c)
{
	client_connection_clear(c);
	free(c->out);
	free(c->in);
}

void client_connection_clear(struct client_connection *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->state = CLIENT_CLOSED;
	c->want_write = 0;
	c->open = 0;
	c->out_at = c->out_len = c->in_at = c->in_len = 0;
}

const char *client_connection_send(struct client_connection *c)
{
	ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return strerror(errno);
	if (n > 0)
		c->out_at += (size_t)n;
	if (c->out_at == c->out_len)
		c->out_at = c->out_len = 0;
	return NULL;
}

const char *client_connection_receive(struct client_connection *c)
{
	ssize_t n;

	c->in_len -= c->in_at;
	memmove(c->in, c->in + c->in_at, c->in_len);
	c->in_at = 0;
	n = recv(c->fd, c->in + c->in_len, CLIENT_IN_BYTES - c->in_len, 0);
	if (n > 0)
		c->in_len += (size_t)n;
	else if (n == 0)
		return "the gateway closed the connection";
	else if (errno != EAGAIN && errno != EINTR)
		return strerror(errno);
	return NULL;
}

const char *client_connection_line(struct client_connection *c, size_t *len)
{
	char *line = c->in + c->in_at, *stop;

	while ((stop = memchr(line, '\n', c->in_len - c->in_at))) {
		*len = (size_t)(stop - line);
		c->in_at += *len + 1;
		if (*len > 0)
			return line;
		line = c->in + c->in_at;
	}
	if (c->in_at > 0 || c->in_len < CLIENT_IN_BYTES)
		return NULL;
	*len = c->in_len;
	c->in_at = c->in_len;
	return line;
}
