#include "common/program/kernel_limit.h"

#include <inttypes.h>
#include <stdio.h>

int kernel_number_read(const char *path, int64_t *value)
{
	FILE *file = fopen(path, "re");
	int n;

	if (!file)
		return -1;
	n = fscanf(file, "%" SCNd64, value);
	fclose(file);
	return n == 1 ? 0 : -1;
}

#define SYNCOOKIES "/proc/sys/net/ipv4/tcp_syncookies"

int kernel_limit_read(int i, int64_t connections, struct kernel_limit *limit)
{
	static const struct {
		const char *path, *name, *effect;
	} table[] = {
		{ "/proc/sys/net/core/somaxconn", "net.core.somaxconn",
		  "fewer connections can wait to be accepted, and further ones are delayed by a "
		  "second" },
		{ SYNCOOKIES, "net.ipv4.tcp_syncookies",
		  "a flood of half-open connections keeps other clients out" },
		{ "/proc/sys/net/ipv4/tcp_max_syn_backlog", "net.ipv4.tcp_max_syn_backlog",
		  "without tcp_syncookies further connections are delayed by a second" },
		{ "/proc/sys/net/netfilter/nf_conntrack_max", "net.netfilter.nf_conntrack_max",
		  "the kernel drops packets of all connections of the machine" },
	};
	int64_t cookies = 0;

	if (i >= (int)(sizeof(table) / sizeof(table[0])))
		return -1;
	*limit = (struct kernel_limit){ .name = table[i].name, .effect = table[i].effect };
	switch (i) {
	case 0:
		limit->wanted = LISTEN_BACKLOG;
		break;
	case 1:
		limit->wanted = 1;
		break;
	case 2: /* with cookies the queue may be full */
		if (kernel_number_read(SYNCOOKIES, &cookies) || cookies == 0)
			limit->wanted = LISTEN_BACKLOG;
		break;
	default:
		limit->wanted = 2 * connections;
	}
	return kernel_number_read(table[i].path, &limit->value) == 0;
}
