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
struct scrape_page {
	struct fetch fetch;
	CURLcode code;
};

struct scrape_target {
	char *address, *host; /* the latter without port and brackets */
	int has_tls, has_key; /* the key is sent */
	const char *kind;     /* NULL: it has not answered yet */
	struct scrape_page metrics, readyz;
};

struct scrape {
	const struct config *config;
	CURLM *multi; /* NULL: it rests */
	struct curl_slist *headers;
	struct scrape_target *targets;
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

#define SHOWN_N (sizeof(shown) / sizeof(shown[0]))

/* ---- the setting */

/*
 * Reads COUPON_ADMIN_METRICS into `*targets`, for targets_free(). COUPON_TLS_CA decides about TLS
 * where an address has neither http:// nor https://. A wrong setting ends the process.
 */
static size_t targets_read(const struct config *config, struct scrape_target **targets)
{
	char *list = checked(strdup(config->admin_metrics)), *rest = list, *part, *host;
	size_t n = 0;
	int port;

	*targets = NULL;
	while (*config->admin_metrics && (part = strsep(&rest, ","))) {
		const char *scheme = strncmp(part, "http://", 7) == 0    ? "http://"
				     : strncmp(part, "https://", 8) == 0 ? "https://"
									 : "";
		struct scrape_target *target;

		*targets = checked(reallocarray(*targets, n + 1, sizeof(**targets)));
		target = &(*targets)[n++];
		memset(target, 0, sizeof(*target));
		part += strlen(scheme);
		target->address = checked(strdup(part));
		if (config_address(part, &host, &port))
			log_fatal("COUPON_ADMIN_METRICS is \"%s\": allowed are addresses "
				  "host:port, joined by commas, each with a port from 1 to 65535 "
				  "and optionally http:// or https:// before it",
				  config->admin_metrics);
		target->host = checked(strdup(host));
		target->has_tls = *scheme ? strcmp(scheme, "https://") == 0
					  : *config->tls_ca != '\0';

		/*
		 * Everybody on the way can read a key that is sent in the clear. To an address with
		 * http:// on another machine no key is sent: a worker needs none.
		 */
		target->has_key = target->has_tls || host_is_loopback(host) ||
				  strcmp(config->insecure, "yes") == 0;
		if (!*scheme && *config->gateway_key && !target->has_key)
			log_fatal("COUPON_ADMIN_METRICS has \"%s\", which is another machine: set "
				  "COUPON_TLS_CA, so that COUPON_GATEWAY_KEY is sent over TLS, or "
				  "COUPON_INSECURE=yes",
				  target->address);
	}
	free(list);
	return n;
}

static void targets_free(struct scrape_target *targets, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(targets[i].address);
		free(targets[i].host);
	}
	free(targets);
}

unsigned scrape_check(const struct config *config)
{
	struct scrape_target *targets;
	size_t n = targets_read(config, &targets);

	targets_free(targets, n);
	return (unsigned)n;
}

/* ---- pages */

static void page_init(struct scrape_page *page, const struct scrape *scrape,
		      const struct scrape_target *target, const char *path)
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

/* Why it is of no use (lent), or NULL. A process that is not ready answers 503 with its reasons. */
static const char *page_end(struct scrape_page *page, CURLM *multi, char text[64])
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

/* Reads the metrics that the console shows from text exposition: "name 7", "name{label="x"} 7". */
static cJSON *metrics_read(const char *text)
{
	cJSON *metrics = output_object(), *labels;

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		const char *begin, *value;
		char name[64], label[64];
		size_t i = 0;

		if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
			continue;
		begin = text + strlen(PREFIX);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "{ "), begin);
		while (i < SHOWN_N && strcmp(shown[i], name) != 0)
			i++;
		if (i == SHOWN_N)
			continue;
		begin += strlen(name);
		if (*begin != '{') {
			cJSON_AddNumberToObject(metrics, name, strtod(begin, NULL));
			continue;
		}
		begin = strchr(begin, '"');
		value = begin ? strchr(begin + 1, '"') : NULL;
		if (!value)
			continue;
		snprintf(label, sizeof(label), "%.*s", (int)(value - begin - 1), begin + 1);
		labels = cJSON_GetObjectItemCaseSensitive(metrics, name);
		if (!labels)
			labels = checked(cJSON_AddObjectToObject(metrics, name));
		cJSON_AddNumberToObject(labels, label,
					strtod(value + 1 + strspn(value + 1, "} "), NULL));
	}
	return metrics;
}

/* ---- all processes */

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
	scrape->n = targets_read(config, &scrape->targets);
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
	}
	targets_free(scrape->targets, scrape->n);
	curl_slist_free_all(scrape->headers);
	free(scrape);
}

cJSON *scrape_read(struct scrape *scrape)
{
	cJSON *list = checked(cJSON_CreateArray());
	int running = 1, left;
	CURLMsg *message;

	if (!scrape->multi)
		scrape->multi = checked(curl_multi_init());
	for (size_t i = 0; i < 2 * scrape->n; i++) {
		struct scrape_target *target = &scrape->targets[i / 2];
		struct scrape_page *page = i % 2 ? &target->readyz : &target->metrics;

		page->code = CURLE_OPERATION_TIMEDOUT;
		fetch_begin(&page->fetch);
		check(curl_multi_add_handle(scrape->multi, page->fetch.curl) == CURLM_OK);
	}
	while (running) { /* until each has ended: each has its own time limit */
		check(curl_multi_perform(scrape->multi, &running) == CURLM_OK);
		if (running)
			check(curl_multi_poll(scrape->multi, NULL, 0, (int)TIMEOUT_MS, NULL) ==
			      CURLM_OK);
	}
	while ((message = curl_multi_info_read(scrape->multi, &left))) {
		struct scrape_page *page;

		check(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &page) == CURLE_OK);
		page->code = message->data.result;
	}

	for (size_t i = 0; i < scrape->n; i++) {
		struct scrape_target *target = &scrape->targets[i];
		cJSON *object = output_object(), *metrics = NULL, *readyz = NULL;
		char error[64], unused[64];
		const char *why = page_end(&target->metrics, scrape->multi, error);

		if (!why)
			metrics = metrics_read(target->metrics.fetch.text);
		if (!page_end(&target->readyz, scrape->multi, unused))
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
		cJSON_AddItemToArray(list, object);
	}
	return list;
}
