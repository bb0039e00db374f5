/*
 * coupon-gateway: checks eligibility in Redis and queues accepted receives. With --processes N the
 * parent binds every listener, forks N processes that share them, restarts each that dies, and
 * passes SIGTERM on.
 */

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/config.h"
#include "common/program/kernel_limit.h"
#include "common/program/weak_settings.h"
#include "common/program/program.h"
#include "common/program/ready.h"
#include "common/program/service_manager.h"
#include "common/serve/http_origin.h"
#include "common/serve/loop.h"
#include "common/serve/tls.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/claim/attempts.h"
#include "gateway/auth/auth.h"
#include "gateway/auth/limits.h"
#include "gateway/gateway.h"
#include "gateway/listen/arrival.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * The parent of several processes: it keeps a given number of them running, and serves no requests.
 *
 *	start ──▶ runs ──died──▶ waits, at most 2 s ──▶ start (also after a fork that failed)
 *	SIGHUP: passed on to each
 *	SIGTERM: passed on to each, and none is started any more; the second one is GATEWAY_FINISH
 *	         for them, the third one GATEWAY_GIVE_UP; a process that has not ended some time
 *	         after the longest wait that it may have is killed
 *
 * It alone tells systemd anything. Where systemd watches it, it watches the processes: one whose
 * loop does not turn is killed, and started again, and the others go on.
 */

#define PROCESSES_MAX 64
/* a process finishes its requests, then closes its connections */
#define STOP_GRACE_MS (GATEWAY_FINISH_MS + GATEWAY_STOP_GRACE_MS)
#define SETTLED_MS 10000 /* a process that ran this long did not fail at its start */
#define WAIT_MAX_MS 60000
#define KILLED_WAIT_MS 100
#define SILENT_LOOKS 4      /* a quarter of the time of the watchdog each */
#define RELOAD_MAX_MS 10000 /* a process that has just started ignores SIGHUP */

struct process {
	pid_t pid;        /* 0: it does not run */
	int64_t start_ms; /* when it was started, or is to be */
	struct backoff backoff;
	unsigned silent;  /* looks in a row at which its loop had not turned */
	unsigned reloads; /* it will have made so many when it has obeyed SIGHUP */
};

struct processes {
	struct process list[PROCESSES_MAX];
	size_t n;
	const struct config *config;
	const struct gateway_sockets *sockets;
	sigset_t signals;  /* the parent waits for these */
	sigset_t before;   /* the masks that the processes get */
	int64_t looked_ms; /* for loops that turn */
	int64_t reload_ms; /* since when processes load their files again; 0: they do not */
};

/* Starts the processes that are due; returns the ms until the next one is. */
static int64_t processes_start(struct processes *processes)
{
	int64_t now_ms = clock_monotonic_ms(), wait_ms = WAIT_MAX_MS;
	pid_t parent = getpid();

	for (size_t i = 0; i < processes->n; i++) {
		struct process *process = &processes->list[i];

		if (!process->pid && process->start_ms <= now_ms) {
			pid_t pid;

			service_turned(i, 0);
			process->silent = 0;
			process->reloads = service_loop_reloads(i);
			pid = fork();
			if (pid == 0) {
				/* another parent may want the ports */
				prctl(PR_SET_PDEATHSIG, GATEWAY_FINISH);
				if (getppid() != parent)
					exit(1);
				signal(SIGHUP, SIG_IGN); /* until its loop handles it */
				sigprocmask(SIG_SETMASK, &processes->before, NULL);
				service_leave();
				metrics_enter(i);
				doubt_enter(i, clock_monotonic_ms(), ADMISSION_DOUBT_MS);
				attempts_enter(i);
				limits_enter(i);
				gateway_run(processes->config, processes->sockets, i);
				exit(0);
			}
			process->start_ms = clock_monotonic_ms();
			if (pid > 0) {
				process->pid = pid;
			} else {
				int64_t again_ms = backoff_ms(&process->backoff);

				log_error("process_not_started", LOG_S("error", strerror(errno)),
					  LOG_I("again_in_ms", again_ms));
				process->start_ms += again_ms;
			}
		}
		if (!process->pid && process->start_ms - now_ms < wait_ms)
			wait_ms = process->start_ms - now_ms;
	}
	return wait_ms;
}

/* Reaps the processes that have ended; returns how many run. */
static size_t processes_reap(struct processes *processes, int stopping)
{
	int64_t now_ms = clock_monotonic_ms();
	size_t running = 0;
	int status;

	for (size_t i = 0; i < processes->n; i++) {
		struct process *process = &processes->list[i];
		pid_t pid = process->pid;

		if (!pid)
			continue;
		if (waitpid(pid, &status, WNOHANG) != pid) {
			running++;
			continue;
		}
		process->pid = 0;
		if (!stopping) {
			int64_t wait_ms;

			if (now_ms - process->start_ms > SETTLED_MS)
				backoff_reset(&process->backoff);
			wait_ms = backoff_ms(&process->backoff);
			process->start_ms = now_ms + wait_ms;
			log_error("process_died", LOG_I("pid", pid), LOG_I("status", status),
				  LOG_I("again_in_ms", wait_ms));
		}
	}
	return running;
}

/*
 * Tells systemd how the processes are. If it watches this one, a process is killed when its loop
 * has not turned at so many looks in a row; by the clock, all of them would be killed after a pause
 * of the whole machine.
 */
static void processes_tell(struct processes *processes)
{
	int64_t now_ms = clock_monotonic_ms(), watch_ms = service_watch_ms();
	int is_look = watch_ms > 0 && now_ms - processes->looked_ms >= watch_ms;
	char status[SERVICE_STATUS_SIZE];
	size_t ready = 0;
	int are_reloaded = 1;

	if (!service_is_due(now_ms))
		return;
	if (is_look)
		processes->looked_ms = now_ms;
	for (size_t i = 0; i < processes->n; i++) {
		struct process *process = &processes->list[i];

		if (!process->pid)
			continue;
		ready += (size_t)service_loop_is_ready(i);
		if ((int)(service_loop_reloads(i) - process->reloads) < 0)
			are_reloaded = 0;
		if (!is_look)
			continue;
		process->silent = service_loop_has_turned(i) ? 0 : process->silent + 1;
		if (process->silent == SILENT_LOOKS) {
			log_error("process_hangs", LOG_I("pid", process->pid));
			kill(process->pid, SIGKILL);
		}
	}
	snprintf(status, sizeof(status), "%zu of %zu processes are ready", ready, processes->n);
	service_tell(now_ms, ready == processes->n, 1, status);
	if (processes->reload_ms &&
	    (are_reloaded || now_ms - processes->reload_ms >= RELOAD_MAX_MS)) {
		processes->reload_ms = 0;
		service_reloaded();
	}
}

/* The next signal, or -1 after the time. */
static int signal_wait(const struct processes *processes, int64_t wait_ms)
{
	struct timespec wait = { .tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000 };

	return sigtimedwait(&processes->signals, NULL, &wait);
}

static void processes_signal(const struct processes *processes, int signal)
{
	for (size_t i = 0; i < processes->n; i++) {
		if (!processes->list[i].pid)
			continue;
		if (signal == SIGKILL)
			log_error("process_killed", LOG_I("pid", processes->list[i].pid));
		kill(processes->list[i].pid, signal);
	}
}

/* Runs until SIGTERM or SIGINT. Returns the exit status: 1 when a process had to be killed. */
static int processes_run(const struct config *config, const struct gateway_sockets *sockets)
{
	struct processes processes = { .n = (size_t)config->processes,
				       .config = config,
				       .sockets = sockets };
	char status[SERVICE_STATUS_SIZE];
	int64_t until_ms, left_ms, now_ms;
	int killed = 0, signals = 1, signal = 0;
	size_t running;

	check(processes.n <= PROCESSES_MAX);
	/* Blocked from here on: a signal stays pending until sigtimedwait(). */
	sigemptyset(&processes.signals);
	sigaddset(&processes.signals, SIGCHLD);
	sigaddset(&processes.signals, SIGTERM);
	sigaddset(&processes.signals, SIGINT);
	sigaddset(&processes.signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &processes.signals, &processes.before);
	while (signal != SIGTERM && signal != SIGINT) {
		int64_t wait_ms = processes_start(&processes);

		signal = signal_wait(&processes,
				     wait_ms < service_every_ms() ? wait_ms : service_every_ms());
		processes_reap(&processes, 0);
		if (signal == SIGHUP) {
			service_reloading();
			processes.reload_ms = clock_monotonic_ms();
			for (size_t i = 0; i < processes.n; i++)
				processes.list[i].reloads = service_loop_reloads(i) + 1;
			processes_signal(&processes, SIGHUP);
		}
		processes_tell(&processes);
	}
	service_stopping(gateway_stop_ms(config), "stopping");

	/* Once the processes have closed theirs as well, connections are refused. */
	close(sockets->api[0]);
	close(sockets->http);
	processes_signal(&processes, SIGTERM);
	until_ms = clock_monotonic_ms() + gateway_stop_ms(config);
	while ((running = processes_reap(&processes, 1)) > 0) {
		now_ms = clock_monotonic_ms();
		if (service_is_due(now_ms)) {
			snprintf(status, sizeof(status), "stopping; %zu of %zu processes run",
				 running, processes.n);
			service_tell(now_ms, 0, 1, status);
		}
		left_ms = until_ms - now_ms;
		if (left_ms <= 0 && !killed) {
			processes_signal(&processes, SIGKILL);
			killed = 1;
		}
		if (left_ms <= 0)
			left_ms = KILLED_WAIT_MS;
		if (left_ms > service_every_ms())
			left_ms = service_every_ms();
		signal = signal_wait(&processes, left_ms);
		if (signal != SIGTERM && signal != SIGINT)
			continue;
		signals++;
		until_ms = clock_monotonic_ms() + STOP_GRACE_MS +
			   (signals < 3 ? config->stop_wait_s * 1000 : 0);
		processes_signal(&processes, signals < 3 ? GATEWAY_FINISH : GATEWAY_GIVE_UP);
	}
	return killed;
}

static void limit_check(const struct kernel_limit *limit)
{
	if (limit->value < limit->wanted)
		log_warn("kernel_limit", LOG_S("name", limit->name), LOG_I("value", limit->value),
			 LOG_I("wanted", limit->wanted), LOG_S("effect", limit->effect));
}

/*
 * Compares what the kernel allows with what the settings and a rush need. Raises the limit of
 * descriptors as far as it may, and logs each limit that is too low.
 *
 * Without a descriptor nobody is answered, not even that the gateway is full. So where that limit
 * stays too low for `connections_max`, no more connections are taken than leave some to the
 * services, and to /healthz, /readyz and /metrics.
 */
static void kernel_prepare(struct config *config)
{
	int64_t wanted = config->connections_max + DESCRIPTORS_OF_SERVICES, left;
	struct kernel_limit one;
	struct rlimit limit;
	int has_limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		if (limit.rlim_cur != RLIM_INFINITY && (int64_t)limit.rlim_cur < wanted) {
			left = (int64_t)limit.rlim_cur - DESCRIPTORS_OF_SERVICES;
			if (left < (int64_t)limit.rlim_cur / 4)
				left = (int64_t)limit.rlim_cur / 4;
			one = (struct kernel_limit){ .name = "RLIMIT_NOFILE",
						     .value = (int64_t)limit.rlim_cur,
						     .wanted = wanted,
						     .effect = DESCRIPTORS_FEW_EFFECT };
			limit_check(&one);
			config->connections_max = left > 0 ? left : 1;
		}
	}
	for (int i = 0;
	     (has_limit =
		      kernel_limit_read(i, config->connections_max * config->processes, &one)) >= 0;
	     i++)
		if (has_limit)
			limit_check(&one);
}

static const struct program_manual manual = {
	.name = "coupon-gateway",
	.summary = "Checks eligibility in Redis and queues accepted receives in RabbitMQ.",
	.program = CONFIG_GATEWAY,
};

int main(int argc, char **argv)
{
	struct gateway_sockets sockets;
	struct config config;
	struct service_listener given[] = {
		{ .name = "lines", .setting = "COUPON_LISTEN", .address = &config.listen },
		{ .name = "lines",
		  .setting = "COUPON_UNIX_SOCKET",
		  .address = &config.unix_socket,
		  .is_unix = 1 },
		{ .name = "http", .setting = "COUPON_HTTP_LISTEN", .address = &config.http_listen },
	};
	int check_only, status = 0;

	program_begin();
	log_init("coupon-gateway", LOG_LEVEL_INFO, 0);
	program_answer(&manual, argc, argv);
	argc = config_read(&config, CONFIG_GATEWAY, argc, argv, NULL);
	ready_answer(&config, "COUPON_HTTP_LISTEN", config.http_listen, argc, argv);
	check_only = program_checks_only(argc, argv);
	config_log(&config, "coupon-gateway");
	service_version_init();
	program_trust_stores(&config);
	program_check_urls(&config);
	service_listeners_take(given, sizeof(given) / sizeof(given[0]));
	bind_check("COUPON_LISTEN", config.listen);
	bind_check("COUPON_HTTP_LISTEN", config.http_listen);
	http_hosts_check(config.http_hosts);
	http_origins_check(config.http_origins);
	arrivals_check(&config);
	tls_check(&config);
	auth_check(&config);
	transport_check(&config, CONFIG_GATEWAY);
	if (check_only) {
		printf("the settings are well-formed\n");
		config_free(&config);
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	kernel_prepare(&config);
	service_begin((size_t)config.processes);
	sockets.api[0] = given[0].fd;
	if (given[0].fd < 0)
		sockets.api[0] = bind_tcp("COUPON_LISTEN", config.listen);
	sockets.api[1] = given[1].fd;
	if (given[1].fd < 0 && *config.unix_socket)
		sockets.api[1] = bind_unix("COUPON_UNIX_SOCKET", config.unix_socket);
	sockets.http = given[2].fd;
	if (given[2].fd < 0)
		sockets.http = bind_tcp("COUPON_HTTP_LISTEN", config.http_listen);
	sockets.are_given = given[0].fd >= 0 || given[1].fd >= 0 || given[2].fd >= 0;
	metrics_share((size_t)config.processes);
	doubt_init((size_t)config.processes);
	attempts_init((size_t)config.processes,
		      &(struct attempts_limits){ .free_max = config.code_attempts,
						 .wrong_max = config.code_wrong_max });
	limits_init((size_t)config.processes);
	key_uses_init();
	if (config.processes == 1)
		gateway_run(&config, &sockets, 0);
	else
		status = processes_run(&config, &sockets);
	if (*config.unix_socket && given[1].fd < 0)
		bind_unix_end(sockets.api[1], config.unix_socket);
	config_free(&config);
	return status;
}
