/* coupon-worker: settles receives, and keeps the campaigns where it is the elected keeper. */
#include "common/config.h"
#include "common/log.h"
#include "common/redis_url.h"
#include "worker/keeper.h"
#include "worker/worker.h"

#include <amqp.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define VERSION "0.1.0"

static void help(void)
{
	printf("usage: coupon-worker [-n] [--SETTING VALUE]...\n"
	       "Settles accepted receives in PostgreSQL.\n\n"
	       "  -n         check the configuration and exit\n"
	       "  --help     this text\n"
	       "  --version  the version\n\n");
	config_help(CONFIG_WORKER, stdout);
}

/* The addresses, as far as they can be checked without connecting. */
static void addresses_check(const struct config *config)
{
	struct amqp_connection_info amqp;
	struct redis_url redis;
	PQconninfoOption *options;
	char *url = strdup(config->amqp_url), *error = NULL;

	if (!url || amqp_parse_url(url, &amqp) != AMQP_STATUS_OK || amqp.ssl)
		log_fatal("AMQP_URL is not of the form amqp://user:password@host:port/vhost");
	free(url);
	if (redis_url_parse(&redis, config->redis_url))
		log_fatal("REDIS_URL is not of the form redis://[user:password@]host[:port][/database]");
	redis_url_fini(&redis);
	options = PQconninfoParse(config->database_url, &error);
	if (!options)
		log_fatal("DATABASE_URL is not a libpq connection string: %s", error ? error : "out of memory");
	PQconninfoFree(options);
}

static int signals_open(void)
{
	sigset_t signals;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	/* Before any thread begins: they all inherit it. */
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		log_fatal("cannot receive signals");
	return fd;
}

int main(int argc, char **argv)
{
	struct config config;
	struct keeper *keeper;
	struct worker *worker;
	int check_only = 0, signal_fd;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			help();
			return 0;
		}
		if (strcmp(argv[i], "--version") == 0) {
			printf("coupon-worker %s\n", VERSION);
			return 0;
		}
	}
	argc = config_read(&config, CONFIG_WORKER, argc, argv);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("unknown argument %s; see --help", argv[i]);
		check_only = 1;
	}
	config_log(&config, "coupon-worker");
	addresses_check(&config);
	if (check_only) {
		printf("the configuration is right\n");
		config_free(&config);
		return 0;
	}
	signal_fd = signals_open();
	keeper = keeper_start(&config);
	worker = worker_new(&config);
	worker_run(worker, signal_fd);
	worker_free(worker);
	keeper_stop(keeper);
	close(signal_fd);
	config_free(&config);
	log_info("stopped", LOG_I("pid", getpid()));
	return 0;
}
