/* coupon-worker: settles receives, and keeps the campaigns where it is the elected keeper. */
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/program/program.h"
#include "common/serve/loop.h"
#include "events/relay.h"
#include "events/webhooks.h"
#include "keeper/keeper.h"
#include "worker/monitor.h"
#include "worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void help(void)
{
	printf("usage: coupon-worker [-n] [--SETTING VALUE]...\n"
	       "Settles accepted receives in PostgreSQL.\n\n"
	       "  -n         check the settings and exit\n"
	       "  --help     this text\n"
	       "  --version  the version\n\n");
	config_help(CONFIG_WORKER, stdout);
}

static int signals_open(void)
{
	sigset_t signals;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	/* Before any thread starts: every thread inherits it. */
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		log_fatal("cannot receive signals");
	return fd;
}

int main(int argc, char **argv)
{
	struct config config;
	struct webhooks *webhooks;
	struct monitor *monitor;
	struct rules rules;
	struct keeper *keeper;
	struct relay *relay;
	struct worker *worker;
	int check_only = 0, signal_fd;

	program_dump_nothing();
	log_init("coupon-worker", LOG_LEVEL_INFO, 0);
	program_answer("coupon-worker", help, argc, argv);
	argc = config_read(&config, CONFIG_WORKER, argc, argv);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("unknown argument %s; see --help", argv[i]);
		check_only = 1;
	}
	config_log(&config, "coupon-worker");
	service_version_init();
	program_check_urls(&config);
	bind_check("COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen);
	rules_read(&rules, &config);
	relay_check(&config);
	if (check_only) {
		printf("the settings are well-formed\n");
		config_free(&config);
		return 0;
	}
	signal_fd = signals_open();
	monitor = monitor_start(bind_tcp("COUPON_WORKER_HTTP_LISTEN", config.worker_http_listen));
	keeper = keeper_start(&config);
	relay = relay_start(&config);
	webhooks = webhooks_start(&config, &rules);
	worker = worker_new(&config, keeper);
	worker_run(worker, signal_fd);
	worker_free(worker);
	webhooks_stop(webhooks);
	relay_stop(relay);
	keeper_stop(keeper);
	monitor_stop(monitor);
	close(signal_fd);
	config_free(&config);
	log_info("stopped", LOG_I("pid", getpid()));
	return 0;
}
