#include "common/program/ready.h"

#include "common/check.h"
#include "common/fetch.h"
#include "common/log/log.h"
#include "common/serve/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 4000L

/* A listener on all addresses is asked on loopback. */
static const char *host_of(const char *bound)
{
	return strcmp(bound, "0.0.0.0") == 0 ? "127.0.0.1"
	       : strcmp(bound, "::") == 0    ? "::1"
					     : bound;
}

/* Whether connections from this address begin with the PROXY protocol. */
static int has_proxy(const struct config *config, const char *host)
{
	char why[NETWORKS_WHY_SIZE];
	struct networks balancers;
	struct network address;

	return config->proxy_from && *config->proxy_from &&
	       networks_parse(&balancers, config->proxy_from, why) == 0 &&
	       network_of_text(&address, host) == 0 && networks_have(&balancers, &address);
}

void ready_answer(const struct config *config, const char *setting, const char *address, int argc,
		  char **argv)
{
	char *copy, *bound, *url;
	struct fetch fetch;
	const char *host;
	long status = 0;
	CURLcode code;
	int port;

	if (argc != 2 || strcmp(argv[1], "--ready") != 0)
		return;
	copy = checked(strdup(address));
	if (config_address(copy, &bound, &port))
		log_fatal("%s is \"%s\": --ready needs host:port", setting, address);
	host = host_of(bound);
	check(asprintf(&url, strchr(host, ':') ? "%s://[%s]:%d/readyz" : "%s://%s:%d/readyz",
		       *config->tls_cert ? "https" : "http", host, port) > 0);

	/* No key is sent, so whoever answers learns nothing: any certificate will do. */
	fetch_init(&fetch, TRUST_GATEWAY, host, url, TIMEOUT_MS);
	FETCH_SET(&fetch, CURLOPT_SSL_CTX_FUNCTION, NULL);
	FETCH_SET(&fetch, CURLOPT_SSL_VERIFYPEER, 0L);
	FETCH_SET(&fetch, CURLOPT_SSL_VERIFYHOST, 0L);
	FETCH_SET(&fetch, CURLOPT_HAPROXYPROTOCOL, has_proxy(config, host) ? 1L : 0L);
	code = curl_easy_perform(fetch.curl);
	if (code != CURLE_OK) {
		printf("no answer at %s: %s\n", url, fetch_why(&fetch, code));
	} else {
		check(curl_easy_getinfo(fetch.curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
		if (fetch.len > 0)
			printf("%s%s", fetch.text, fetch.text[fetch.len - 1] == '\n' ? "" : "\n");
		else
			printf("%s answers %ld without a body\n", url, status);
	}
	fetch_fini(&fetch);
	free(url);
	free(copy);
	exit(status == 200 ? 0 : 1);
}
