#include "common/fetch.h"

#include "common/program/program.h"
#include "common/serve/tls.h"

#include <stdlib.h>
#include <string.h>

static size_t on_bytes(char *bytes, size_t size, size_t n, void *data)
{
	struct fetch *fetch = data;
	size_t more = size * n;

	if (fetch->len + more > FETCH_BYTES_MAX)
		return 0;
	fetch->text = checked(realloc(fetch->text, fetch->len + more + 1));
	memcpy(fetch->text + fetch->len, bytes, more);
	fetch->len += more;
	fetch->text[fetch->len] = '\0';
	return more;
}

static CURLcode on_tls(CURL *curl, void *context, void *data)
{
	struct fetch *fetch = data;

	(void)curl;
	if (fetch->config &&
	    tls_certificate_set(context, fetch->config, fetch->trust, sizeof(fetch->trust)))
		return CURLE_SSL_CERTPROBLEM;
	return trust_context_set(context, fetch->store, fetch->host, fetch->trust)
		       ? CURLE_SSL_CACERT_BADFILE
		       : CURLE_OK;
}

void fetch_init(struct fetch *fetch, enum trust_store store, const char *host, const char *url,
		long timeout_ms)
{
	int has_tls = strncmp(url, "https:", 6) == 0;

	*fetch = (struct fetch){ .curl = checked(curl_easy_init()), .store = store, .host = host };
	FETCH_SET(fetch, CURLOPT_URL, url);
	FETCH_SET(fetch, CURLOPT_PROTOCOLS_STR, has_tls ? "https" : "http");
	FETCH_SET(fetch, CURLOPT_PROXY, ""); /* also not one of the environment */
	FETCH_SET(fetch, CURLOPT_FOLLOWLOCATION, 0L);
	FETCH_SET(fetch, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	FETCH_SET(fetch, CURLOPT_CAINFO, NULL); /* on_tls() reads the file of the setting alone */
	FETCH_SET(fetch, CURLOPT_CAPATH, NULL);
	FETCH_SET(fetch, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* else the file counts for a day */
	FETCH_SET(fetch, CURLOPT_SSL_CTX_FUNCTION, on_tls);
	FETCH_SET(fetch, CURLOPT_SSL_CTX_DATA, fetch);
	FETCH_SET(fetch, CURLOPT_USERAGENT, "couponmq/" PROGRAM_VERSION);
	FETCH_SET(fetch, CURLOPT_WRITEFUNCTION, on_bytes);
	FETCH_SET(fetch, CURLOPT_WRITEDATA, fetch);
	FETCH_SET(fetch, CURLOPT_ERRORBUFFER, fetch->why);
	FETCH_SET(fetch, CURLOPT_TIMEOUT_MS, timeout_ms);
	FETCH_SET(fetch, CURLOPT_NOSIGNAL, 1L);
	/* A name server that does not answer is waited for until the time-out, and no longer. */
	FETCH_SET(fetch, CURLOPT_QUICK_EXIT, 1L);
}

void fetch_fini(struct fetch *fetch)
{
	curl_easy_cleanup(fetch->curl);
	free(fetch->text);
}

void fetch_begin(struct fetch *fetch)
{
	fetch->len = 0;
	*fetch->why = *fetch->trust = '\0';
}

const char *fetch_why(const struct fetch *fetch, CURLcode code)
{
	return *fetch->trust ? fetch->trust : *fetch->why ? fetch->why : curl_easy_strerror(code);
}
