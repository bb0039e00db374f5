#include "webhook/rules.h"

#include "common/log/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int schemes_read(const char *schemes)
{
	if (strcmp(schemes, "https") != 0 && strcmp(schemes, "https,http") != 0)
		log_fatal("COUPON_WEBHOOK_SCHEMES is \"%s\": allowed are https and https,http",
			  schemes);
	return strcmp(schemes, "https") != 0;
}

void rules_read(struct rules *rules, const struct config *config)
{
	char why[NETWORKS_WHY_SIZE];

	rules->is_http_allowed = schemes_read(config->webhook_schemes);
	if (networks_parse(&rules->networks, config->webhook_networks, why))
		log_fatal("COUPON_WEBHOOK_NETWORKS is \"%s\": %s", config->webhook_networks, why);
	rules->ca_file = config->webhook_ca;
	if (*rules->ca_file && access(rules->ca_file, R_OK) != 0)
		log_fatal("COUPON_WEBHOOK_CA is \"%s\": the file cannot be read: %s",
			  rules->ca_file, strerror(errno));
	rules->timeout_ms = config->webhook_timeout_ms;
}
