#include "admin/scrape.h"

#include "common/check.h"
#include "common/fetch.h"
#include "common/log/log.h"
#include "common/resolving.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 900L
#define PREFIX "couponmq_"

/* One path of one process. */
struct page {
	struct fetch fetch;
	CURLcode code;
};

struct target {
	char *address, *host; /* the latter without port and brackets */
	int has_tls, has_key; /* the key is sent */
	const char *kind;     /* NULL: it has not answered yet */
	struct page metrics, readyz;
};

struct scrape {
	const struct config *config;
	CURLM *multi; /* NULL: it rests */
	struct curl_slist *headers;
	struct target *targets;
	size_t n;
};

/* The metrics that the console shows. */
static const char *const shown[] = {
	"connections",
	"http_connections",
	"processes",
	"processes_ready",
	"requests_inflight",
	"receives_accepted_total",
	"receives_unconfirmed",
	"outcomes_waiting",
	"redis_up",
	"amqp_up",
	"amqp_blocked",
	"database_up",
	"weak_settings",
	"queues_differing",
	"answers_total",
	"issue_seconds_bucket",
	"worker_receives_total",
	"worker_issued_total",
	"worker_rejected_total",
	"worker_dead_total",
	"worker_held",
	"worker_put_off",
	"worker_put_off_coupons",
	"worker_consumer_up",
	"worker_publisher_up",
	"worker_database_up",
	"worker_postgresql_old",
	"worker_queues_differing",
	"worker_events_waiting",
	"worker_events_oldest_ms",
	"worker_webhook_waiting",
	"worker_webhook_disabled",
	"keeper_elected",
	"keeper_redis_up",
	"keeper_database_up",
	"keeper_postgresql_behind",
	"keeper_installation_differs",
	"keeper_keys_ahead",
	"keeper_coupons",
	"keeper_coupons_unequal",
	"keeper_coupons_unfreed",
	"keeper_receives_in_flight",
	"keeper_stock_lost",
	"keeper_outbox_messages",
	"keeper_outbox_age_milliseconds",
	"keeper_queue_messages",
	"keeper_rebuild_rows",
	"keeper_rebuild_rows_filled",
};

/* ---- the setting */

/*
 * Calls `take` for each address, with its host. Without http:// or https:// before it COUPON_TLS_CA
 * decides: then `scheme` is "". Returns how many there are.
 */
static unsigned addresses_read(const struct config *config,
			       void (*take)(struct scrape *scrape, const struct config *config,
					    const char *scheme, const char *address,
					    const char *host),
			       struct scrape *scrape)
{
	char *list = checked(strdup(config->admin_metrics)), *rest = list, *part;
	unsigned n = 0;

	while ((part = strsep(&rest, ",")) && *config->admin_metrics) {
		const char *scheme = strncmp(part, "http://", 7) == 0    ? "http://"
				     : strncmp(part, "https://", 8) == 0 ? "https://"
									 : "";
		char *address = checked(strdup(part + strlen(scheme))), *host;
		int port;

		part += strlen(scheme);
		if (config_address(part, &host, &port))
			log_fatal("COUPON_ADMIN_METRICS is \"%s\": allowed is host:port with a "
				  "port from 1 to 65535, with http:// or https:// before it or "
				  "without, several joined by commas",
				  config->admin_metrics);
		take(scrape, config, scheme, address, host);
		free(address);
		n++;
	}
	free(list);
	return n;
}

/*
 * A key that is sent in the clear is everybody's who is on the way. Where http:// is wanted by name
 * it is not sent to another machine: a worker needs none.
 */
static void address_check(struct scrape *scrape, const struct config *config, const char *scheme,
			  const char *address, const char *host)
{
	(void)scrape;
	if (!*scheme && *config->gateway_key && !*config->tls_ca && !host_is_loopback(host) &&
	    strcmp(config->insecure, "yes") != 0)
		log_fatal("COUPON_ADMIN_METRICS has \"%s\", which is another machine: with "
			  "COUPON_GATEWAY_KEY it needs COUPON_TLS_CA, so that the key is sent by "
			  "TLS, or COUPON_INSECURE=yes",
			  address);
}

unsigned scrape_check(const struct config *config)
{
	return addresses_read(config, address_check, NULL);
}

/* ---- pages */

static void page_init(struct page *page, const struct scrape *scrape, const struct target *target,
		      const char *path)
{
	const struct config *config = scrape->config;
	char *url;

	check(asprintf(&url, "%s://%s%s", target->has_tls ? "https" : "http", target->address,
		       path) > 0);
	fetch_init(&page->fetch, TRUST_GATEWAY, target->host, url, TIMEOUT_MS);
	FETCH_SET(&page->fetch, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	FETCH_SET(&page->fetch, CURLOPT_HTTPHEADER, target->has_key ? scrape->headers : NULL);
	FETCH_SET(&page->fetch, CURLOPT_PRIVATE, page);
	if (*config->tls_client_ca) /* the others may ask for one, too */
		page->fetch.config = config;
	free(url);
}

static void page_begin(struct page *page, CURLM *multi)
{
	page->code = CURLE_OPERATION_TIMEDOUT;
	fetch_begin(&page->fetch);
	check(curl_multi_add_handle(multi, page->fetch.curl) == CURLM_OK);
}

/* Why it is of no use (lent), or NULL. A process that is not ready answers 503 with its reasons. */
static const char *page_end(struct page *page, CURLM *multi, char text[64])
{
	long status = 0;

	check(curl_multi_remove_handle(multi, page->fetch.curl) == CURLM_OK);
	check(curl_easy_getinfo(page->fetch.curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
	if (page->code != CURLE_OK)
		return fetch_why(&page->fetch, page->code);
	if (page->fetch.len > 0 && (status == 200 || status == 503))
		return NULL;
	snprintf(text, 64, "HTTP status %ld%s", status,
		 status == 401 || status == 403 ? ": COUPON_GATEWAY_KEY needs the role monitor"
						: "");
	return text;
}

/* ---- metrics */

static int is_shown(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		if (strlen(shown[i]) == len && memcmp(shown[i], name, len) == 0)
			return 1;
	return 0;
}

/* "name 7" or "name{label="value"} 7", after the prefix. */
static void sample_take(cJSON *metrics, const char *line)
{
	size_t len = strcspn(line, "{ ");
	const char *begin = line + len, *value;
	char name[64], label[64];
	cJSON *labels;

	if (!is_shown(line, len))
		return;
	snprintf(name, sizeof(name), "%.*s", (int)len, line);
	if (*begin != '{') {
		cJSON_AddNumberToObject(metrics, name, strtod(begin, NULL));
		return;
	}
	begin = strchr(begin, '"');
	value = begin ? strchr(begin + 1, '"') : NULL;
	if (!value)
		return;
	snprintf(label, sizeof(label), "%.*s", (int)(value - begin - 1), begin + 1);
	labels = cJSON_GetObjectItemCaseSensitive(metrics, name);
	if (!labels)
		labels = checked(cJSON_AddObjectToObject(metrics, name));
	cJSON_AddNumberToObject(labels, label, strtod(value + 1 + strspn(value + 1, "} "), NULL));
}

static cJSON *metrics_read(const char *text)
{
	cJSON *metrics = output_object();

	while (*text) {
		if (strncmp(text, PREFIX, strlen(PREFIX)) == 0)
			sample_take(metrics, text + strlen(PREFIX));
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return metrics;
}

/* ---- all of them */

static void target_add(struct scrape *scrape, const struct config *config, const char *scheme,
		       const char *address, const char *host)
{
	struct target *target;

	scrape->targets = checked(
		reallocarray(scrape->targets, scrape->n + 1, sizeof(*scrape->targets)));
	target = &scrape->targets[scrape->n++];
	memset(target, 0, sizeof(*target));
	target->address = checked(strdup(address));
	target->host = checked(strdup(host));
	target->has_tls = *scheme ? strcmp(scheme, "https://") == 0 : *config->tls_ca != '\0';
	target->has_key = target->has_tls || host_is_loopback(host) ||
			  strcmp(config->insecure, "yes") == 0;
}

struct scrape *scrape_new(const struct config *config)
{
	struct scrape *scrape = checked(calloc(1, sizeof(*scrape)));
	char *header;

	scrape->config = config;
	if (*config->gateway_key) {
		check(asprintf(&header, "Authorization: Bearer %s", config->gateway_key) > 0);
		scrape->headers = checked(curl_slist_append(NULL, header));
		free(header);
	}
	trust_authorities_set(TRUST_GATEWAY, config->tls_ca);
	addresses_read(config, target_add, scrape);
	for (size_t i = 0; i < scrape->n; i++) {
		page_init(&scrape->targets[i].metrics, scrape, &scrape->targets[i], "/metrics");
		page_init(&scrape->targets[i].readyz, scrape, &scrape->targets[i], "/readyz");
	}
	return scrape;
}

void scrape_rest(struct scrape *scrape)
{
	if (scrape->multi)
		check(curl_multi_cleanup(scrape->multi) == CURLM_OK);
	scrape->multi = NULL;
}

void scrape_free(struct scrape *scrape)
{
	scrape_rest(scrape);
	for (size_t i = 0; i < scrape->n; i++) {
		fetch_fini(&scrape->targets[i].metrics.fetch);
		fetch_fini(&scrape->targets[i].readyz.fetch);
		free(scrape->targets[i].address);
		free(scrape->targets[i].host);
	}
	curl_slist_free_all(scrape->headers);
	free(scrape->targets);
	free(scrape);
}

/* Until each has ended: each has its own time limit. */
static void pages_wait(CURLM *multi)
{
	int running = 1, left;
	CURLMsg *message;

	while (running) {
		check(curl_multi_perform(multi, &running) == CURLM_OK);
		if (running)
			check(curl_multi_poll(multi, NULL, 0, (int)TIMEOUT_MS, NULL) == CURLM_OK);
	}
	while ((message = curl_multi_info_read(multi, &left))) {
		struct page *page;

		check(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &page) == CURLE_OK);
		page->code = message->data.result;
	}
}

static cJSON *target_json(struct target *target, CURLM *multi)
{
	cJSON *object = output_object(), *metrics = NULL, *readyz = NULL;
	char error[64], unused[64];
	const char *why = page_end(&target->metrics, multi, error);

	if (!why)
		metrics = metrics_read(target->metrics.fetch.text);
	if (!page_end(&target->readyz, multi, unused))
		readyz = cJSON_Parse(target->readyz.fetch.text);
	if (cJSON_HasObjectItem(metrics, "processes"))
		target->kind = "gateway";
	else if (cJSON_HasObjectItem(metrics, "worker_held"))
		target->kind = "worker";
	output_text(object, "address", target->address);
	output_text(object, "kind", target->kind);
	output_text(object, "error", why);
	output_add(object, "readyz", readyz ? readyz : cJSON_CreateNull());
	output_add(object, "metrics", metrics ? metrics : cJSON_CreateNull());
	return object;
}

cJSON *scrape_read(struct scrape *scrape)
{
	cJSON *list = checked(cJSON_CreateArray());

	if (!scrape->multi)
		scrape->multi = checked(curl_multi_init());
	for (size_t i = 0; i < scrape->n; i++) {
		page_begin(&scrape->targets[i].metrics, scrape->multi);
		page_begin(&scrape->targets[i].readyz, scrape->multi);
	}
	pages_wait(scrape->multi);
	for (size_t i = 0; i < scrape->n; i++)
		cJSON_AddItemToArray(list, target_json(&scrape->targets[i], scrape->multi));
	return list;
}
