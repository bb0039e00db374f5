/*
 * The thread owns the connection until it has set `state` to DONE; then whoever began it does. Each
 * side changes the state once, and the second one frees.
 */
#include "common/rabbit/link_opening.h"

#include "common/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum state { RUNNING, DONE, ABANDONED };

struct link_opening {
	atomic_int state;
	int fd;
	int confirms;
	struct link_source sources[LINK_SOURCES_MAX];
	size_t sources_n;
	amqp_connection_state_t connection;
	char error[AMQP_LINK_ERROR_SIZE];
	char url[];
};

static void opening_free(struct link_opening *opening)
{
	close(opening->fd);
	free(opening);
}

/* A prefetch that is not global counts for each consumer that begins after it. */
static int source_consume(struct link_opening *opening, const struct link_source *source)
{
	amqp_bytes_t queue = amqp_cstring_bytes(source->queue);

	amqp_basic_qos(opening->connection, AMQP_LINK_CHANNEL, 0, source->prefetch, 0);
	if (amqp_link_result(amqp_get_rpc_reply(opening->connection), opening->error))
		return -1;
	amqp_basic_consume(opening->connection, AMQP_LINK_CHANNEL, queue, queue, 0,
			   source->prefetch == 0, 0, amqp_empty_table);
	return amqp_link_result(amqp_get_rpc_reply(opening->connection), opening->error);
}

static int open_all(struct link_opening *opening)
{
	if (amqp_link_declare(opening->connection, opening->error))
		return -1;
	for (size_t i = 0; i < opening->sources_n; i++)
		if (source_consume(opening, &opening->sources[i]))
			return -1;
	return 0;
}

static void *run(void *data)
{
	struct link_opening *opening = data;
	uint64_t one = 1;
	int expected = RUNNING;

	opening->connection = amqp_link_open(opening->url, opening->confirms, opening->error);
	if (opening->connection && open_all(opening)) {
		amqp_link_drop(opening->connection);
		opening->connection = NULL;
	}
	/* Before DONE: after it this memory may be gone. */
	check(write(opening->fd, &one, sizeof(one)) == sizeof(one));
	if (!atomic_compare_exchange_strong(&opening->state, &expected, DONE)) {
		amqp_link_close(opening->connection);
		opening_free(opening);
	}
	return NULL;
}

struct link_opening *link_opening_begin(const char *url, int confirms,
					const struct link_source *sources, size_t sources_n)
{
	struct link_opening *opening = calloc(1, sizeof(*opening) + strlen(url) + 1);
	pthread_t thread;

	check(opening != NULL && sources_n <= LINK_SOURCES_MAX);
	strcpy(opening->url, url);
	opening->confirms = confirms;
	for (size_t i = 0; i < sources_n; i++)
		opening->sources[i] = sources[i];
	opening->sources_n = sources_n;
	opening->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	check(opening->fd >= 0 && pthread_create(&thread, NULL, run, opening) == 0);
	pthread_detach(thread);
	return opening;
}

int link_opening_fd(const struct link_opening *opening)
{
	return opening->fd;
}

int link_opening_done(const struct link_opening *opening)
{
	return opening->state == DONE;
}

amqp_connection_state_t link_opening_take(struct link_opening *opening,
					  char error[AMQP_LINK_ERROR_SIZE])
{
	amqp_connection_state_t connection = opening->connection;

	check(opening->state == DONE);
	memcpy(error, opening->error, AMQP_LINK_ERROR_SIZE);
	opening_free(opening);
	return connection;
}

void link_opening_abandon(struct link_opening *opening)
{
	int expected = RUNNING;

	if (!opening || atomic_compare_exchange_strong(&opening->state, &expected, ABANDONED))
		return;
	amqp_link_close(opening->connection);
	opening_free(opening);
}
