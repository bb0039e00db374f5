/*
 * coupon-admin: what operators do, over HTTP, in a program of its own: their rights are never in
 * the process that strangers reach. See admin/server.h.
 */
#include "admin/operation.h"
#include "admin/proxy_user.h"
#include "admin/scrape.h"
#include "admin/server.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/program/couponctl.h"
#include "common/program/weak_settings.h"
#include "common/program/program.h"
#include "common/program/ready.h"
#include "common/program/service_manager.h"
#include "common/serve/http_origin.h"
#include "common/serve/loop.h"
#include "common/serve/network.h"
#include "common/serve/tls.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * Connections of clients that find none free wait; the last ones are for commands and stores
 * (loop.h), and more for what COUPON_ADMIN_METRICS names.
 */
#define DESCRIPTORS_MAX 1024

static const struct program_manual manual = {
	.name = "coupon-admin",
	.summary = "Lets operators with API keys manage campaigns over HTTP: each operation is a "
		   "command of couponctl, which must be in the same folder or in ../bin.",
	.program = CONFIG_ADMIN,
};

/* Until it has ended after the last change: commands are killed, threads are waited for. */
#define STOP_GRACE_MS 15000
#define TICK_MS 250

struct admin {
	const struct config *config;
	struct admin_server *server;
};

static void on_signal(evutil_socket_t signal, short what, void *data)
{
	struct admin *admin = data;

	(void)what;
	if (signal == SIGHUP) {
		service_reloading();
		server_reload(admin->server);
		service_reloaded();
		return;
	}
	log_info("stopping", LOG_I("signal", signal));
	service_stopping(admin->config->admin_timeout_ms + STOP_GRACE_MS, "stopping");
	server_stop(admin->server);
}

/* Tells systemd how it is. */
static int on_tick(void *data)
{
	struct admin *admin = data;
	int64_t now_ms = clock_monotonic_ms();
	char status[SERVICE_STATUS_SIZE] = "ready";
	const char *why;
	int is_ready = server_is_ready(admin->server, &why);

	if (!is_ready)
		snprintf(status, sizeof(status), "not ready; %s", why);
	service_tell(now_ms, is_ready, 1, status);
	return 1;
}

static void serve(const struct config *config, int fd, int is_given)
{
	struct event_base *base = checked(event_base_new());
	struct admin_server *server = server_new(base, fd, is_given, config);
	struct admin admin = { .config = config, .server = server };
	struct ticker *ticker = ticker_new(base, TICK_MS, on_tick, &admin);
	struct event *signals[] = { evsignal_new(base, SIGTERM, on_signal, &admin),
				    evsignal_new(base, SIGINT, on_signal, &admin),
				    evsignal_new(base, SIGHUP, on_signal, &admin) };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		check(signals[i] != NULL && event_add(signals[i], NULL) == 0);
	if (service_every_ms() != INT64_MAX)
		ticker_start(ticker);
	log_info("ready", LOG_S("address", config->admin_listen),
		 LOG_S("program", couponctl_path()));
	event_base_dispatch(base);
	server_free(server);
	ticker_free(ticker);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		event_free(signals[i]);
	event_base_free(base);
}

int main(int argc, char **argv)
{
	struct config config;
	struct service_listener given = { .name = "admin",
					  .setting = "COUPON_ADMIN_LISTEN",
					  .address = &config.admin_listen };
	int check_only, fd;
	struct rlimit limit;
	rlim_t descriptors, others;

	program_begin();
	log_init("coupon-admin", LOG_LEVEL_INFO, 0);
	program_answer(&manual, argc, argv);
	argc = config_read(&config, CONFIG_ADMIN, argc, argv, NULL);
	ready_answer(&config, "COUPON_ADMIN_LISTEN", config.admin_listen, argc, argv);
	check_only = program_checks_only(argc, argv);
	config_log(&config, "coupon-admin");
	service_version_init();
	program_trust_stores(&config);
	program_check_urls(&config);
	if (strcmp(config.admin_listen, "off") == 0)
		log_fatal("COUPON_ADMIN_LISTEN is \"off\": allowed is host:port");
	service_listeners_take(&given, 1);
	bind_check("COUPON_ADMIN_LISTEN", config.admin_listen);
	http_hosts_check(config.http_hosts);
	networks_check("COUPON_CONNECTIONS_NETWORKS", config.connections_networks);
	proxy_users_check(&config);
	approval_check(&config);
	others = scrape_check(&config) * SCRAPE_DESCRIPTORS;
	tls_check(&config);
	transport_check(&config, CONFIG_ADMIN);
	if (check_only) {
		printf("the settings are well-formed\n");
		config_free(&config);
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* until the loop handles it */

	descriptors = DESCRIPTORS_MAX + others;
	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = descriptors < limit.rlim_max ? descriptors : limit.rlim_max;
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	listener_keep((unsigned)others);
	if (limit.rlim_cur < descriptors)
		log_warn("kernel_limit", LOG_S("name", "RLIMIT_NOFILE"),
			 LOG_I("value", (int64_t)limit.rlim_cur),
			 LOG_I("wanted", (int64_t)descriptors),
			 LOG_S("effect", "with many clients, further ones have to wait"));

	config_export(&config, CONFIG_ADMIN, CONFIG_CTL);
	service_begin(0);
	fd = given.fd;
	if (fd < 0)
		fd = bind_tcp("COUPON_ADMIN_LISTEN", config.admin_listen);
	serve(&config, fd, given.fd >= 0);
	config_free(&config);
	return 0;
}
