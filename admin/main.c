/*
 * coupon-admin: what operators do, over HTTP, in a program of its own: their rights are never in
 * the process that strangers reach. See admin/server.h.
 */
#include "admin/scrape.h"
#include "admin/server.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/program/couponctl.h"
#include "common/program/weak_settings.h"
#include "common/program/program.h"
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
		   "command of couponctl, which must be in the same folder.",
	.program = CONFIG_ADMIN,
};

static void on_stop(evutil_socket_t fd, short what, void *server)
{
	(void)what;
	log_info("stopping", LOG_I("signal", fd));
	server_stop(server);
}

static void serve(const struct config *config, int fd)
{
	struct event_base *base = checked(event_base_new());
	struct admin_server *server = server_new(base, fd, config);
	struct event *stops[] = { evsignal_new(base, SIGTERM, on_stop, server),
				  evsignal_new(base, SIGINT, on_stop, server) };

	for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++)
		check(stops[i] != NULL && event_add(stops[i], NULL) == 0);
	log_info("ready", LOG_S("address", config->admin_listen),
		 LOG_S("program", couponctl_path()));
	event_base_dispatch(base);
	server_free(server);
	for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++)
		event_free(stops[i]);
	event_base_free(base);
}

int main(int argc, char **argv)
{
	struct config config;
	int check_only;
	struct rlimit limit;
	rlim_t descriptors, others;

	program_begin();
	log_init("coupon-admin", LOG_LEVEL_INFO, 0);
	program_answer(&manual, argc, argv);
	argc = config_read(&config, CONFIG_ADMIN, argc, argv, NULL);
	check_only = program_checks_only(argc, argv);
	config_log(&config, "coupon-admin");
	service_version_init();
	program_trust_stores(&config);
	program_check_urls(&config);
	if (strcmp(config.admin_listen, "off") == 0)
		log_fatal("COUPON_ADMIN_LISTEN is \"off\": allowed is host:port");
	bind_check("COUPON_ADMIN_LISTEN", config.admin_listen);
	http_hosts_check(config.http_hosts);
	networks_check("COUPON_CONNECTIONS_NETWORKS", config.connections_networks);
	others = scrape_check(&config) * SCRAPE_DESCRIPTORS;
	tls_check(&config);
	transport_check(&config, CONFIG_ADMIN);
	if (check_only) {
		printf("the settings are well-formed\n");
		config_free(&config);
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* changed files of TLS are found without it */

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
	serve(&config, bind_tcp("COUPON_ADMIN_LISTEN", config.admin_listen));
	config_free(&config);
	return 0;
}
