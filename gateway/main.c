/*
 * coupon-gateway: checks eligibility in Redis and queues accepted receives. With --processes N the
 * parent binds every listener, forks N processes that share them, restarts each that dies, and
 * passes SIGTERM on.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/program/config.h"
#include "common/log/log.h"
#include "common/program/program.h"
#include "common/serve/bind.h"
#include "common/log/service_version.h"
#include "gateway/admit/admission.h"
#include "gateway/gateway.h"
#include "gateway/listen/http_hosts.h"
#include "gateway/listen/intake.h"
#include "gateway/metrics.h"
#include "gateway/processes.h"
#include "gateway/redeem/attempts.h"
#include "gateway/admit/doubt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void help(void)
{
	printf("usage: coupon-gateway [-n] [--SETTING VALUE]...\n"
	       "Checks eligibility in Redis and queues accepted receives in RabbitMQ.\n\n"
	       "  -n         check the settings and exit\n"
	       "  --help     this text\n"
	       "  --version  the version\n\n");
	config_help(CONFIG_GATEWAY, stdout);
}

/* Whether the settings are only to be checked. */
static int arguments(struct config *config, int argc, char **argv)
{
	int left = config_read(config, CONFIG_GATEWAY, argc, argv), check_only = 0;

	for (int i = 1; i < left; i++) {
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("unknown argument %s; see --help", argv[i]);
		check_only = 1;
	}
	return check_only;
}

/* Raises the limit of descriptors as far as the system allows. */
static void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void sockets_bind(const struct config *config, struct gateway_sockets *sockets)
{
	sockets->api[0] = bind_tcp("COUPON_LISTEN", config->listen);
	sockets->api[1] = -1;
	if (*config->unix_socket)
		sockets->api[1] = bind_unix("COUPON_UNIX_SOCKET", config->unix_socket);
	sockets->http = bind_tcp("COUPON_HTTP_LISTEN", config->http_listen);
}

/* The arguments of each process. */
struct serving {
	const struct config *config;
	const struct gateway_sockets *sockets;
};

static int process_run(void *context, size_t process)
{
	const struct serving *serving = context;

	metrics_enter(process);
	doubt_enter(process, clock_monotonic_ms(), ADMISSION_DOUBT_MS);
	attempts_enter(process);
	return gateway_run(serving->config, serving->sockets, process);
}

int main(int argc, char **argv)
{
	struct gateway_sockets sockets;
	struct config config;
	int check_only, status;

	program_dump_nothing();
	log_init("coupon-gateway", LOG_LEVEL_INFO, 0);
	program_answer("coupon-gateway", help, argc, argv);
	check_only = arguments(&config, argc, argv);
	config_log(&config, "coupon-gateway");
	service_version_init();
	program_check_urls(&config);
	bind_check("COUPON_LISTEN", config.listen);
	bind_check("COUPON_HTTP_LISTEN", config.http_listen);
	http_hosts_check(config.http_hosts);
	intake_check(&config);
	if (check_only) {
		printf("the settings are well-formed\n");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	descriptors_raise();
	sockets_bind(&config, &sockets);
	metrics_init((size_t)config.processes);
	doubt_init((size_t)config.processes);
	attempts_init((size_t)config.processes,
		      &(struct attempts_limits){ .free_max = config.code_attempts,
						 .wrong_max = config.code_wrong_max });
	if (config.processes == 1)
		status = gateway_run(&config, &sockets, 0);
	else
		status = processes_run((size_t)config.processes, process_run,
				       &(struct serving){ &config, &sockets });
	if (*config.unix_socket)
		bind_unix_end(sockets.api[1], config.unix_socket);
	config_free(&config);
	return status;
}
