#include "events/post.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "common/program/program.h"
#include "common/trust.h"

#include <inttypes.h>
#include <netdb.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX 65536 /* of its head, and of its body: more is not read */
/* Delays between attempts, in seconds. */
#define FIRST_S 5
#define MINUTE 60
#define HOUR (60 * MINUTE)
#define CONTENT_TYPE "Content-Type: application/cloudevents-batch+json"

_Static_assert(POST_WHY_SIZE >= URL_WHY_SIZE, "a reason of url_check() fits");

#define MADE_BYTES 32
#define FINGERPRINT_OF "couponmq webhook secret"

int secret_parse(struct secret *secret, const char *text, size_t len)
{
	size_t prefix = strlen(SECRET_PREFIX);

	if (len > prefix && strncmp(text, SECRET_PREFIX, prefix) == 0 &&
	    base64_read(text + prefix, len - prefix, sodium_base64_VARIANT_ORIGINAL, secret->bytes,
			sizeof(secret->bytes), &secret->n) == 0 &&
	    secret->n >= SECRET_BYTES_LEAST)
		return 0;
	sodium_memzero(secret, sizeof(*secret));
	return -1;
}

void secret_make(char text[SECRET_TEXT_SIZE])
{
	unsigned char bytes[MADE_BYTES];
	size_t prefix = strlen(SECRET_PREFIX);

	randombytes_buf(bytes, sizeof(bytes));
	strcpy(text, SECRET_PREFIX);
	sodium_bin2base64(text + prefix, SECRET_TEXT_SIZE - prefix, bytes, sizeof(bytes),
			  sodium_base64_VARIANT_ORIGINAL);
	sodium_memzero(bytes, sizeof(bytes));
}

/* The HMAC-SHA-256 of two texts, one after the other. */
static void mac_make(const struct secret *secret, const char *text, const char *more,
		     unsigned char mac[crypto_auth_hmacsha256_BYTES])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, secret->bytes, secret->n);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)text, strlen(text));
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)more, strlen(more));
	crypto_auth_hmacsha256_final(&state, mac);
	sodium_memzero(&state, sizeof(state));
}

char *secret_fingerprint(const struct secret *secret, char out[SECRET_FINGERPRINT_SIZE])
{
	unsigned char mac[crypto_auth_hmacsha256_BYTES];

	mac_make(secret, FINGERPRINT_OF, "", mac);
	return sodium_bin2hex(out, SECRET_FINGERPRINT_SIZE, mac, (SECRET_FINGERPRINT_SIZE - 1) / 2);
}

int signature_write(const char *message, int64_t at_s, const char *body, const char *secrets,
		    char out[SIGNATURES_SIZE])
{
	unsigned char mac[crypto_auth_hmacsha256_BYTES];
	char *head, *at = out;
	int n = 0, rc = 0;

	check(asprintf(&head, "%s.%" PRId64 ".", message, at_s) > 0);
	for (; *secrets && rc == 0; n++) {
		size_t len = strcspn(secrets, " ");
		struct secret secret;

		if (n == SIGNATURES_MAX || secret_parse(&secret, secrets, len)) {
			rc = -1;
			break;
		}
		mac_make(&secret, head, body, mac);
		sodium_memzero(&secret, sizeof(secret));
		at += sprintf(at, n ? " v1," : "v1,");
		sodium_bin2base64(at, (size_t)(out + SIGNATURES_SIZE - at), mac, sizeof(mac),
				  sodium_base64_VARIANT_ORIGINAL);
		at += strlen(at);
		secrets += len + (secrets[len] == ' ');
	}
	*at = '\0';
	free(head);
	return n > 0 ? rc : -1;
}

struct post {
	const struct rules *rules;
	CURL *curl;
	struct curl_slist *headers;
	char *body;
	char *host; /* of the URL, in brackets if it is an address of IPv6 */
	char error[CURL_ERROR_SIZE];
	char refused[TRUST_ERROR_SIZE]; /* why it was not connected to; "": it was */
	size_t head_bytes;
	size_t body_bytes;
};

/* libcurl connects to exactly this address. */
static curl_socket_t on_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct post *post = data;
	const char *kind = networks_refusal(&post->rules->networks, &address->addr);
	char text[NI_MAXHOST] = "?";

	(void)purpose;
	if (!kind)
		return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	getnameinfo(&address->addr, address->addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
	snprintf(post->refused, sizeof(post->refused),
		 "the address %.64s is %s, and not in COUPON_WEBHOOK_NETWORKS", text, kind);
	return CURL_SOCKET_BAD;
}

/* As for other services (common/trust.h), so that a changed file counts, and never blocks. */
static CURLcode on_tls(CURL *curl, void *context, void *data)
{
	struct post *post = data;
	char host[URL_BYTES_MAX + 1];
	size_t len;

	(void)curl;
	snprintf(host, sizeof(host), "%s", post->host + (*post->host == '['));
	len = strcspn(host, "]");
	host[len - (len > 1 && host[len - 1] == '.')] = '\0';
	return trust_context_set(context, TRUST_WEBHOOK, host, post->refused)
		       ? CURLE_SSL_CACERT_BADFILE
		       : CURLE_OK;
}

/*
 * Ignores the body of the answer, of which only the status and Retry-After are used; `data` counts
 * its bytes.
 */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *data)
{
	size_t *count = data;

	(void)bytes;
	*count += size * n;
	return *count <= ANSWER_BYTES_MAX ? size * n : 0;
}

__attribute__((format(printf, 2, 3))) static void header_add(struct post *post, const char *format,
							     ...)
{
	char *line;
	va_list list;

	va_start(list, format);
	check(vasprintf(&line, format, list) >= 0);
	va_end(list);
	post->headers = checked(curl_slist_append(post->headers, line));
	free(line);
}

#define SET(post, option, value) \
	check(curl_easy_setopt((post)->curl, (option), (value)) == CURLE_OK)

struct post *post_new(const struct rules *rules, const struct post_request *request,
		      struct post_result *result)
{
	struct post *post = checked(calloc(1, sizeof(*post)));
	int64_t at_s = clock_wall_ms() / 1000;
	char signatures[SIGNATURES_SIZE];
	CURLU *parsed;

	post->rules = rules;
	*result = (struct post_result){ .status = 0 };
	if (url_check(request->url, rules, result->why)) {
		post_free(post);
		return NULL;
	}
	if (signature_write(request->message, at_s, request->body, request->secrets, signatures)) {
		snprintf(result->why, POST_WHY_SIZE, "the webhook has no secret that can be used");
		post_free(post);
		return NULL;
	}

	post->body = checked(strdup(request->body));
	parsed = checked(curl_url());
	check(curl_url_set(parsed, CURLUPART_URL, request->url, 0) == CURLUE_OK &&
	      curl_url_get(parsed, CURLUPART_HOST, &post->host, 0) == CURLUE_OK);
	curl_url_cleanup(parsed);

	header_add(post, CONTENT_TYPE);
	header_add(post, "Expect:"); /* or libcurl waits for a go-ahead with a large body */
	header_add(post, "Accept: */*");
	header_add(post, "webhook-id: %s", request->message);
	header_add(post, "webhook-timestamp: %" PRId64, at_s);
	header_add(post, "webhook-signature: %s", signatures);

	post->curl = checked(curl_easy_init());
	SET(post, CURLOPT_URL, request->url);
	SET(post, CURLOPT_PROTOCOLS_STR, rules->is_http_allowed ? "https,http" : "https");
	SET(post, CURLOPT_PROXY, ""); /* also not one of the environment */
	SET(post, CURLOPT_FOLLOWLOCATION, 0L);
	SET(post, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(post, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	SET(post, CURLOPT_OPENSOCKETDATA, post);
	SET(post, CURLOPT_SSL_VERIFYPEER, 1L);
	SET(post, CURLOPT_SSL_VERIFYHOST, 2L);
	SET(post, CURLOPT_CAINFO, NULL); /* on_tls() reads the file of the setting alone */
	SET(post, CURLOPT_CAPATH, NULL);
	SET(post, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* else the file counts for a day */
	SET(post, CURLOPT_SSL_CTX_FUNCTION, on_tls);
	SET(post, CURLOPT_SSL_CTX_DATA, post);
	SET(post, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(post, CURLOPT_POST, 1L);
	SET(post, CURLOPT_POSTFIELDS, post->body);
	SET(post, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(post->body));
	SET(post, CURLOPT_HTTPHEADER, post->headers);
	SET(post, CURLOPT_USERAGENT, "couponmq/" PROGRAM_VERSION);
	SET(post, CURLOPT_HEADERFUNCTION, on_bytes);
	SET(post, CURLOPT_HEADERDATA, &post->head_bytes);
	SET(post, CURLOPT_WRITEFUNCTION, on_bytes);
	SET(post, CURLOPT_WRITEDATA, &post->body_bytes);
	SET(post, CURLOPT_ERRORBUFFER, post->error);
	SET(post, CURLOPT_TIMEOUT_MS, (long)rules->timeout_ms);
	SET(post, CURLOPT_CONNECTTIMEOUT_MS, (long)rules->timeout_ms);
	SET(post, CURLOPT_NOSIGNAL, 1L);
	/* A name server that does not answer is waited for until the time-out, and no longer. */
	SET(post, CURLOPT_QUICK_EXIT, 1L);
	return post;
}

CURL *post_handle(struct post *post)
{
	return post->curl;
}

void post_result(const struct post *post, CURLcode code, struct post_result *result)
{
	long status = 0;
	curl_off_t retry_after_s = 0, duration_us = 0;
	const char *text;
	size_t n = 0;

	check(curl_easy_getinfo(post->curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
	check(curl_easy_getinfo(post->curl, CURLINFO_RETRY_AFTER, &retry_after_s) == CURLE_OK);
	check(curl_easy_getinfo(post->curl, CURLINFO_TOTAL_TIME_T, &duration_us) == CURLE_OK);
	*result = (struct post_result){ .status = (int)status,
					.retry_after_s = retry_after_s,
					.duration_ms = duration_us / 1000 };
	if (code == CURLE_OK)
		return;
	if (post->head_bytes > ANSWER_BYTES_MAX || post->body_bytes > ANSWER_BYTES_MAX) {
		snprintf(result->why, POST_WHY_SIZE, "the answer has more than %d bytes",
			 ANSWER_BYTES_MAX);
		return;
	}
	/* A text of libcurl may have parts of a certificate. */
	text = *post->refused ? post->refused
	       : *post->error ? post->error
			      : curl_easy_strerror(code);
	for (; text[n] && n < POST_WHY_SIZE - 1; n++)
		result->why[n] = text[n] >= ' ' && text[n] < 0x7f ? text[n] : '?';
	result->why[n] = '\0';
}

void post_free(struct post *post)
{
	if (!post)
		return;
	curl_easy_cleanup(post->curl);
	curl_slist_free_all(post->headers);
	curl_free(post->host);
	free(post->body);
	free(post);
}

const char *post_end_name(enum post_end end)
{
	static const char *const names[] = { [POST_DELIVERED] = "delivered",
					     [POST_RETRY] = "retry",
					     [POST_FAILED] = "failed",
					     [POST_GONE] = "gone",
					     [POST_RELEASED] = "released" };

	return names[end];
}

/* An answer that was cut after its status has arrived all the same. */
int post_is_delivered(const struct post_result *result)
{
	return result->status >= 200 && result->status < 300;
}

enum post_end post_end_of(const struct post_result *result, int64_t attempts, int64_t attempts_most)
{
	if (post_is_delivered(result))
		return POST_DELIVERED;
	if (result->status == 410)
		return POST_GONE;
	return attempts < attempts_most ? POST_RETRY : POST_FAILED;
}

int64_t post_pause_ms(const struct post_result *result)
{
	if (result->status != 429 && result->status != 503)
		return 0;
	return 1000 * (result->retry_after_s < RETRY_AFTER_S_MAX ? result->retry_after_s
								 : RETRY_AFTER_S_MAX);
}

int64_t post_retry_ms(int64_t n, int64_t first_ms, uint32_t random)
{
	static const int64_t after_s[] = { FIRST_S,   5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR,
					   10 * HOUR, 14 * HOUR,  20 * HOUR,   24 * HOUR };
	const int64_t last = (int64_t)(sizeof(after_s) / sizeof(after_s[0]));
	int64_t delay_ms = first_ms * after_s[(n < last ? n : last) - 1] / FIRST_S;

	return delay_ms + delay_ms / 4 * (random % 1024) / 1024;
}
