#include "gateway/kernel.h"

#include "common/log/log.h"
#include "common/serve/loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#define DESCRIPTORS_OF_SERVICES 200 /* and of the process itself */

static void limit_check(const char *name, int64_t value, int64_t wanted, const char *effect)
{
	if (value < wanted)
		log_warn("kernel_limit", LOG_S("name", name), LOG_I("value", value),
			 LOG_I("wanted", wanted), LOG_S("effect", effect));
}

/* A kernel without the file has no such limit. */
static void file_check(const char *name, const char *path, int64_t wanted, const char *effect)
{
	FILE *file = fopen(path, "r");
	int64_t value;

	if (!file)
		return;
	if (fscanf(file, "%" SCNd64, &value) == 1)
		limit_check(name, value, wanted, effect);
	fclose(file);
}

/*
 * Without a descriptor nobody is answered, not even that the gateway is full. So no more
 * connections are taken than leave some to the services, and to /healthz, /readyz and /metrics.
 */
static void descriptors_raise(struct config *config)
{
	int64_t wanted = config->connections_max + DESCRIPTORS_OF_SERVICES, left;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || (int64_t)limit.rlim_cur >= wanted)
		return;
	left = (int64_t)limit.rlim_cur - DESCRIPTORS_OF_SERVICES;
	if (left < (int64_t)limit.rlim_cur / 4)
		left = (int64_t)limit.rlim_cur / 4;
	limit_check("RLIMIT_NOFILE", (int64_t)limit.rlim_cur, wanted,
		    "fewer connections than COUPON_CONNECTIONS_MAX are taken");
	config->connections_max = left > 0 ? left : 1;
}

void kernel_prepare(struct config *config)
{
	descriptors_raise(config);
	file_check("net.core.somaxconn", "/proc/sys/net/core/somaxconn", LISTEN_BACKLOG,
		   "fewer connections can wait to be accepted, and others are delayed by a second");
	file_check("net.ipv4.tcp_syncookies", "/proc/sys/net/ipv4/tcp_syncookies", 1,
		   "a flood of connections that are never finished keeps others out");
	file_check("net.netfilter.nf_conntrack_max", "/proc/sys/net/netfilter/nf_conntrack_max",
		   2 * config->connections_max * config->processes,
		   "packets are dropped, of all connections of the machine");
}
