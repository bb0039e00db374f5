/*
 * coupon-gateway: checks eligibility in Redis and queues what was accepted. With --processes N the parent binds every
 * listener, forks N processes that share them, starts one again when it dies, and passes SIGTERM on.
 */
#include "common/backoff.h"
#include "common/check.h"
#include "common/config.h"
#include "common/log.h"
#include "gateway/gateway.h"
#include "gateway/listener.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 64
#define RESTART_PAUSE_US 200000

static volatile sig_atomic_t stop_requested;

static void help(void)
{
	printf("coupon-gateway: checks eligibility in Redis and queues accepted receives in RabbitMQ\n\n"
	       "usage: coupon-gateway [options]\n\n"
	       "  --help      this text\n"
	       "  -n          check the settings and exit\n\n"
	       "Each option can also be set in the environment, under the name behind it:\n\n");
	config_help(CONFIG_GATEWAY, stdout);
}

static void arguments(struct config *config, int argc, char **argv, int *check_only)
{
	int left = config_read(config, CONFIG_GATEWAY, argc, argv);

	*check_only = 0;
	for (int i = 1; i < left; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			help();
			exit(0);
		}
		if (strcmp(argv[i], "-n") != 0)
			log_fatal("%s: no such option; --help lists them", argv[i]);
		*check_only = 1;
	}
}

/* As many descriptors as the system lets us have. */
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
	sockets->api[0] = sockets->api[1] = sockets->http = -1;
	if (strcmp(config->listen, "off") != 0)
		sockets->api[0] = listener_bind_tcp("COUPON_LISTEN", config->listen);
	if (*config->unix_socket)
		sockets->api[1] = listener_bind_unix("COUPON_UNIX_SOCKET", config->unix_socket);
	if (strcmp(config->http_listen, "off") != 0)
		sockets->http = listener_bind_tcp("COUPON_HTTP_LISTEN", config->http_listen);
}

static void on_stop(int signal)
{
	(void)signal;
	stop_requested = 1;
}

static pid_t process_start(const struct config *config, const struct gateway_sockets *sockets, size_t process)
{
	pid_t parent = getpid(), pid = fork();

	check(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		exit(1);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	metrics_enter(process);
	exit(gateway_run(config, sockets));
}

/* Keeps the processes running until SIGTERM, then waits for them. */
static int processes_run(const struct config *config, const struct gateway_sockets *sockets)
{
	struct sigaction action = { .sa_handler = on_stop }; /* no SA_RESTART: wait() returns */
	size_t n = (size_t)config->processes;
	pid_t pids[PROCESSES_MAX];
	int status;
	pid_t pid;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	for (size_t i = 0; i < n; i++)
		pids[i] = process_start(config, sockets, i);
	while (!stop_requested) {
		pid = wait(&status);
		for (size_t i = 0; pid > 0 && !stop_requested && i < n; i++) {
			if (pids[i] != pid)
				continue;
			log_error("process_died", LOG_I("pid", pid), LOG_I("status", status));
			usleep(RESTART_PAUSE_US);
			pids[i] = process_start(config, sockets, i);
		}
	}
	for (size_t i = 0; i < n; i++)
		kill(pids[i], SIGTERM);
	while (wait(&status) > 0 || errno == EINTR)
		;
	return 0;
}

int main(int argc, char **argv)
{
	struct gateway_sockets sockets;
	struct config config;
	int check_only, status;

	log_init("coupon-gateway", LOG_LEVEL_INFO, 0);
	arguments(&config, argc, argv, &check_only);
	config_log(&config, "coupon-gateway");
	if (check_only) {
		printf("the settings are well-formed\n");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	descriptors_raise();
	sockets_bind(&config, &sockets);
	metrics_init((size_t)config.processes);
	if (config.processes == 1)
		status = gateway_run(&config, &sockets);
	else
		status = processes_run(&config, &sockets);
	if (*config.unix_socket)
		unlink(config.unix_socket);
	config_free(&config);
	return status;
}
