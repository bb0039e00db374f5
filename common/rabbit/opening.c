/*
 * The thread owns the connection until it has set `state` to DONE; then its caller does. Each side
 * changes the state once, and the second one frees.
 */
#include "common/rabbit/opening.h"

#include "common/check.h"
#include "common/rabbit/topology.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum state { RUNNING, DONE, ABANDONED };

struct rabbit_opening {
	atomic_int state;
	int fd;
	struct rabbit_opening_plan plan;
	amqp_connection_state_t connection;
	char error[RABBIT_ERROR_SIZE];
	char url[];
};

static void opening_free(struct rabbit_opening *opening)
{
	close(opening->fd);
	free(opening);
}

/* A prefetch that is not global applies to each consumer that starts after it. */
static int source_consume(struct rabbit_opening *opening, const struct rabbit_source *source)
{
	amqp_bytes_t queue = amqp_cstring_bytes(source->queue);

	amqp_basic_qos(opening->connection, RABBIT_CHANNEL, 0, source->prefetch, 0);
	if (rabbit_reply_check(amqp_get_rpc_reply(opening->connection), opening->error))
		return -1;
	amqp_basic_consume(opening->connection, RABBIT_CHANNEL, queue, queue, 0,
			   source->prefetch == 0, 0, amqp_empty_table);
	return rabbit_reply_check(amqp_get_rpc_reply(opening->connection), opening->error);
}

static int open_all(struct rabbit_opening *opening)
{
	if (!opening->plan.passive &&
	    rabbit_topology_declare(opening->connection, opening->plan.confirms, opening->error))
		return -1;
	for (size_t i = 0; i < opening->plan.sources_n; i++)
		if (source_consume(opening, &opening->plan.sources[i]))
			return -1;
	return 0;
}

static void *run(void *data)
{
	struct rabbit_opening *opening = data;
	uint64_t one = 1;
	int expected = RUNNING;

	opening->connection = rabbit_connection_open(opening->url, opening->plan.confirms,
						     opening->error);
	if (opening->connection && open_all(opening)) {
		rabbit_connection_drop(opening->connection);
		opening->connection = NULL;
	}
	/* Before DONE: after it this memory may be freed. */
	check(write(opening->fd, &one, sizeof(one)) == sizeof(one));
	if (!atomic_compare_exchange_strong(&opening->state, &expected, DONE)) {
		rabbit_connection_close(opening->connection);
		opening_free(opening);
	}
	return NULL;
}

struct rabbit_opening *rabbit_opening_begin(const char *url, const struct rabbit_opening_plan *plan)
{
	struct rabbit_opening *opening = calloc(1, sizeof(*opening) + strlen(url) + 1);
	pthread_t thread;

	check(opening != NULL);
	strcpy(opening->url, url);
	opening->plan = *plan;
	opening->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	check(opening->fd >= 0 && pthread_create(&thread, NULL, run, opening) == 0);
	pthread_detach(thread);
	return opening;
}

int rabbit_opening_fd(const struct rabbit_opening *opening)
{
	return opening->fd;
}

int rabbit_opening_done(const struct rabbit_opening *opening)
{
	return opening->state == DONE;
}

amqp_connection_state_t rabbit_opening_take(struct rabbit_opening *opening,
					    char error[RABBIT_ERROR_SIZE])
{
	amqp_connection_state_t connection = opening->connection;

	check(opening->state == DONE);
	memcpy(error, opening->error, RABBIT_ERROR_SIZE);
	opening_free(opening);
	return connection;
}

void rabbit_opening_abandon(struct rabbit_opening *opening)
{
	int expected = RUNNING;

	if (!opening || atomic_compare_exchange_strong(&opening->state, &expected, ABANDONED))
		return;
	rabbit_connection_close(opening->connection);
	opening_free(opening);
}
