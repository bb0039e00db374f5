/* TLS to RabbitMQ: what is published over it, and which servers are refused, with which words. */
#include "common/check.h"
#include "common/clock.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/trust.h"
#include "fake_broker.h"
#include "tls_front.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ITEMS 40
#define BODY_BYTES 300000
#define WAIT_MS 20000

static struct identity authority, other_authority;
static char authority_path[] = "/tmp/couponmq-authority-XXXXXX";
static char other_path[] = "/tmp/couponmq-authority-XXXXXX";
static struct fake_broker broker;
static int broker_port;

static int all_start(void **state)
{
	char url[64];

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	authority = identity_make(&(struct identity_terms){ .name = "authority" });
	other_authority = identity_make(&(struct identity_terms){ .name = "another" });
	identity_write(&authority, authority_path);
	identity_write(&other_authority, other_path);
	if (fake_broker_start(&broker, url))
		return -1;
	broker_port = atoi(strrchr(url, ':') + 1);
	return 0;
}

static int all_stop(void **state)
{
	(void)state;
	fake_broker_stop(&broker);
	unlink(authority_path);
	unlink(other_path);
	identity_free(&authority);
	identity_free(&other_authority);
	return 0;
}

/* As the programs connect, to this host at this port. NULL with the sentence. */
static amqp_connection_state_t try(const char *host, int port, const char *authorities,
				   char error[RABBIT_ERROR_SIZE])
{
	char url[96];

	snprintf(url, sizeof(url), "amqps://guest:guest@%s:%d/%%2f", host, port);
	trust_authorities_set(TRUST_RABBITMQ, authorities);
	return rabbit_connection_open(url, 1, error);
}

static void taken_expect(const struct identity_terms *terms, const char *host)
{
	struct identity identity = identity_make(terms);
	char error[RABBIT_ERROR_SIZE] = "";
	amqp_connection_state_t connection;
	struct front front;

	front_start(&front, &identity, broker_port, 0);
	connection = try(host, front.port, authority_path, error);
	if (!connection)
		fail_msg("refused: %s", error);
	rabbit_connection_close(connection);
	front_stop(&front);
	identity_free(&identity);
}

/* The broker behind it must not see a connection: no login is sent to a server that is refused. */
static void refused_expect(const struct identity_terms *terms, const char *host,
			   const char *authorities, int most, const char *words)
{
	struct identity identity = identity_make(terms);
	char error[RABBIT_ERROR_SIZE] = "";
	struct front front;

	front_start(&front, &identity, broker_port, most);
	assert_null(try(host, front.port, authorities, error));
	front_stop(&front);
	if (!strstr(error, words))
		fail_msg("\"%s\" is not in: %s", words, error);
	assert_int_equal(front.handshakes, 0);
	identity_free(&identity);
}

static void test_taken(void **state)
{
	(void)state;
	taken_expect(&(struct identity_terms){ .name = "mq",
					       .alternate = "DNS:localhost",
					       .issuer = &authority },
		     "localhost");
	taken_expect(&(struct identity_terms){ .name = "mq",
					       .alternate = "DNS:other,IP:127.0.0.1",
					       .issuer = &authority },
		     "127.0.0.1");
}

static void test_refused(void **state)
{
	const struct identity_terms right = { .name = "mq",
					      .alternate = "DNS:localhost,IP:127.0.0.1",
					      .issuer = &authority };
	struct identity_terms terms = right;

	(void)state;
	refused_expect(&right, "localhost", other_path, 0, "unable to get local issuer");
	refused_expect(&right, "localhost", "", 0, "unable to get local issuer");
	terms.alternate = "DNS:mq.example,IP:127.0.0.1";
	refused_expect(&terms, "localhost", authority_path, 0,
		       "certificate \"/CN=mq\" refused: hostname mismatch");
	terms.alternate = "DNS:localhost,DNS:127.0.0.1,IP:127.0.0.2";
	refused_expect(&terms, "127.0.0.1", authority_path, 0, "IP address mismatch");
	terms.alternate = "DNS:local*,DNS:*";
	refused_expect(&terms, "localhost", authority_path, 0, "hostname mismatch");
	terms = right;
	terms.from_s = -2 * DAY_S;
	terms.until_s = -DAY_S;
	refused_expect(&terms, "localhost", authority_path, 0, "certificate has expired");
	terms.from_s = DAY_S;
	terms.until_s = 2 * DAY_S;
	refused_expect(&terms, "localhost", authority_path, 0, "certificate is not yet valid");
	terms = right;
	terms.issuer = NULL;
	refused_expect(&terms, "localhost", authority_path, 0, "self-signed certificate");
}

/* A server has two names, one of which its certificate has: whichever is tried first. */
static void test_each_host_of_a_cluster_by_its_own_name(void **state)
{
	struct identity identity = identity_make(&(struct identity_terms){
		.name = "mq", .alternate = "DNS:localhost", .issuer = &authority });
	char url[96], error[RABBIT_ERROR_SIZE];
	struct front front;

	(void)state;
	front_start(&front, &identity, broker_port, 0);
	snprintf(url, sizeof(url), "amqps://guest:guest@127.0.0.1:%d,localhost:%d/%%2f", front.port,
		 front.port);
	trust_authorities_set(TRUST_RABBITMQ, authority_path);
	for (int i = 0; i < 6; i++) {
		amqp_connection_state_t connection = rabbit_connection_open(url, 1, error);

		if (!connection)
			fail_msg("refused: %s", error);
		rabbit_connection_close(connection);
	}
	front_stop(&front);
	assert_int_equal(front.handshakes, 6);
	identity_free(&identity);
}

/* The verdict on a certificate, in memory. */
static int is_taken(const struct identity_terms *terms, const char *host)
{
	SSL_CTX *server_context = SSL_CTX_new(TLS_server_method());
	SSL_CTX *client_context = SSL_CTX_new(TLS_client_method());
	struct identity identity = identity_make(terms);
	char error[TRUST_ERROR_SIZE];
	SSL *server, *client;
	BIO *ends[2];
	int rc = -1;

	SSL_CTX_use_certificate(server_context, identity.certificate);
	SSL_CTX_use_PrivateKey(server_context, identity.key);
	trust_authorities_set(TRUST_REDIS, authority_path);
	assert_int_equal(trust_context_set(client_context, TRUST_REDIS, host, error), 0);
	assert_true(BIO_new_bio_pair(&ends[0], 0, &ends[1], 0));
	server = SSL_new(server_context);
	client = SSL_new(client_context);
	SSL_set_bio(server, ends[0], ends[0]);
	SSL_set_bio(client, ends[1], ends[1]);
	trust_begin();
	for (int i = 0; i < 10 && rc != 1; i++) {
		rc = SSL_connect(client);
		SSL_accept(server);
	}
	SSL_free(server);
	SSL_free(client);
	SSL_CTX_free(server_context);
	SSL_CTX_free(client_context);
	identity_free(&identity);
	return rc == 1;
}

static void test_wildcards(void **state)
{
	static const struct {
		const char *alternate, *host;
		int taken;
	} cases[] = {
		{ "DNS:redis1.db.example", "redis1.db.example", 1 },
		{ "DNS:REDIS1.db.example", "redis1.DB.example", 1 },
		{ "DNS:*.db.example", "redis1.db.example", 1 },
		{ "DNS:*.db.example", "db.example", 0 },
		{ "DNS:*.example", "redis1.db.example", 0 },
		{ "DNS:redis*.db.example", "redis1.db.example", 0 },
		{ "DNS:redis2.db.example", "redis1.db.example", 0 },
		{ NULL, "redis1.db.example", 0 }, /* a common name only */
		{ "IP:::1", "redis1.db.example", 0 },
		{ "IP:::1", "::1", 1 },
		{ "IP:::1,DNS:::2", "::2", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (is_taken(&(struct identity_terms){ .name = cases[i].host,
						       .alternate = cases[i].alternate,
						       .issuer = &authority },
			     cases[i].host) != cases[i].taken)
			fail_msg("%s for %s", cases[i].alternate ? cases[i].alternate : "none",
				 cases[i].host);
}

/* Without a name any certificate of the authority would do. */
static void test_no_host(void **state)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char error[TRUST_ERROR_SIZE];

	(void)state;
	trust_authorities_set(TRUST_REDIS, authority_path);
	assert_int_equal(trust_context_set(context, TRUST_REDIS, "", error), -1);
	SSL_CTX_free(context);
}

static void test_old_versions_are_refused(void **state)
{
	const struct identity_terms right = { .name = "mq",
					      .alternate = "DNS:localhost",
					      .issuer = &authority };

	(void)state;
	refused_expect(&right, "localhost", authority_path, TLS1_1_VERSION, "protocol");
}

static void test_no_certificates(void **state)
{
	char error[RABBIT_ERROR_SIZE] = "";

	(void)state;
	assert_null(try("localhost", broker_port, "/nonexistent/ca.pem", error));
	assert_non_null(
		strstr(error,
		       ": COUPON_AMQP_CA: no certificates can be read from /nonexistent/ca.pem: "
		       "No such file or directory"));
	assert_int_equal(trust_check(TRUST_RABBITMQ, error), -1);
	trust_authorities_set(TRUST_RABBITMQ, authority_path);
	assert_int_equal(trust_check(TRUST_RABBITMQ, error), 0);
	trust_authorities_set(TRUST_RABBITMQ, "");
	assert_int_equal(trust_check(TRUST_RABBITMQ, error), 0);
}

/* Each would be waited for, or asked at the terminal. */
static void test_files_that_block(void **state)
{
	static const struct {
		const char *what, *why;
	} cases[] = { { "pipe", "named pipe" },
		      { "/dev/zero", "device" },
		      { "/tmp", "folder" },
		      { "pass", "no certificate that can be used" } };
	char folder[] = "/tmp/couponmq-trust-XXXXXX", path[64], error[TRUST_ERROR_SIZE];
	FILE *file;

	(void)state;
	assert_non_null(mkdtemp(folder));
	alarm(60);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(path, sizeof(path), "%s%s%s", *cases[i].what == '/' ? "" : folder,
			 *cases[i].what == '/' ? "" : "/", cases[i].what);
		if (i == 0)
			assert_int_equal(mkfifo(path, 0600), 0);
		if (strcmp(cases[i].what, "pass") == 0) {
			file = fopen(path, "w");
			check(file &&
			      PEM_ASN1_write((i2d_of_void *)i2d_X509, PEM_STRING_X509, file,
					     authority.certificate, EVP_aes_128_cbc(),
					     (unsigned char *)"secret", 6, NULL, NULL) == 1);
			fclose(file);
		}
		trust_authorities_set(TRUST_REDIS, path);
		assert_int_equal(trust_check(TRUST_REDIS, error), -1);
		if (!strstr(error, cases[i].why))
			fail_msg("\"%s\" is not in: %s", cases[i].why, error);
		setenv("SSL_CERT_FILE", path, 1); /* of the system */
		trust_authorities_set(TRUST_REDIS, "");
		assert_int_equal(trust_check(TRUST_REDIS, error), -1);
		unsetenv("SSL_CERT_FILE");
		if (*cases[i].what != '/')
			unlink(path);
	}
	alarm(0);
	assert_int_equal(rmdir(folder), 0);
}

/* A server that does not speak TLS is not logged in to. */
static void test_plain(void **state)
{
	char error[RABBIT_ERROR_SIZE] = "";
	int before = broker.declared;

	(void)state;
	assert_null(try("localhost", broker_port, authority_path, error));
	assert_true(strlen(error) > 0);
	assert_int_equal(broker.declared, before);
}

/* It accepts, and says nothing. */
static void test_silence_is_bounded(void **state)
{
	int64_t begun_ms = clock_monotonic_ms(), took_ms;
	char error[RABBIT_ERROR_SIZE] = "";
	int port, fd = port_listen(&port);

	(void)state;
	assert_null(try("127.0.0.1", port, authority_path, error));
	took_ms = clock_monotonic_ms() - begun_ms;
	close(fd);
	assert_non_null(strstr(error, "time"));
	assert_in_range(took_ms, 1000 * RABBIT_TIMEOUT_S - 100, 2000 * RABBIT_TIMEOUT_S);
}

struct sending {
	int done, lost;
};

static void on_done(void *context, void *item, enum confirm_result result)
{
	struct sending *sending = context;

	(void)item;
	if (result == CONFIRM_DONE)
		sending->done++;
	else
		sending->lost++;
}

static void link_turn(struct rabbit_link *link)
{
	struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };
	int64_t now_ms = clock_monotonic_ms(),
		left_ms = rabbit_link_deadline_ms(link, now_ms) - now_ms;

	poll(&pollfd, 1, left_ms < 0 ? 0 : (int)left_ms);
	rabbit_link_step(link, clock_monotonic_ms());
	rabbit_link_read(link);
}

static const struct rabbit_publisher_port port = { .done = on_done };
static const amqp_basic_properties_t none;

struct rig {
	struct identity identity;
	struct front front;
	char url[96], *body;
	struct sending sending;
	struct rabbit_publisher *publisher;
	struct rabbit_link *link;
};

static void rig_start(struct rig *rig)
{
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;

	memset(rig, 0, sizeof(*rig));
	rig->identity = identity_make(&(struct identity_terms){
		.name = "mq", .alternate = "DNS:localhost", .issuer = &authority });
	front_start(&rig->front, &rig->identity, broker_port, 0);
	snprintf(rig->url, sizeof(rig->url), "amqps://guest:guest@localhost:%d/%%2f",
		 rig->front.port);
	trust_authorities_set(TRUST_RABBITMQ, authority_path);
	rig->body = calloc(1, BODY_BYTES);
	rig->publisher = rabbit_publisher_new("test", rig->url, &port, &rig->sending);
	rig->link = rabbit_publisher_link(rig->publisher);
	while (!rabbit_publisher_ready(rig->publisher)) {
		link_turn(rig->link);
		assert_true(clock_monotonic_ms() < end_ms);
	}
}

static void rig_send(struct rig *rig, size_t bytes)
{
	rabbit_publisher_send(rig->publisher, "x", "y", &none,
			      (amqp_bytes_t){ .len = bytes, .bytes = rig->body }, &rig->sending);
}

static void rig_stop(struct rig *rig)
{
	rabbit_publisher_free(rig->publisher);
	front_stop(&rig->front);
	identity_free(&rig->identity);
	free(rig->body);
}

/* Messages of many records, and no wait for a confirm that has arrived already. */
static void test_published(void **state)
{
	int64_t end_ms = clock_monotonic_ms() + WAIT_MS;
	struct rig rig;

	(void)state;
	rig_start(&rig);
	for (int i = 0; i < ITEMS; i++)
		rig_send(&rig, i % 2 ? BODY_BYTES : 4);
	while (rabbit_publisher_open(rig.publisher) > 0) {
		link_turn(rig.link);
		assert_true(clock_monotonic_ms() < end_ms);
	}
	assert_int_equal(rig.sending.done, ITEMS);
	rig_stop(&rig);
}

/* A broker that no longer reads: the connection ends, and with it the write that waits for it. */
static void test_a_write_that_hangs_is_ended(void **state)
{
	int64_t begun_ms = clock_monotonic_ms();
	struct rig rig;

	(void)state;
	rig_start(&rig);
	rig.front.is_frozen = 1;
	while (rabbit_link_up(rig.link)) {
		rig_send(&rig, BODY_BYTES);
		assert_true(clock_monotonic_ms() - begun_ms < 3L * WATCHDOG_CALL_MS);
	}
	assert_true(strncmp(rabbit_link_trouble(rig.link), "TLS: ", 5) == 0);
	assert_true(rig.sending.lost > 0 && rig.sending.done == 0);
	rig.front.is_frozen = 0;
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_each_host_of_a_cluster_by_its_own_name),
		cmocka_unit_test(test_wildcards),
		cmocka_unit_test(test_no_host),
		cmocka_unit_test(test_old_versions_are_refused),
		cmocka_unit_test(test_no_certificates),
		cmocka_unit_test(test_files_that_block),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_silence_is_bounded),
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_a_write_that_hangs_is_ended),
	};

	return cmocka_run_group_tests_name("trust", tests, all_start, all_stop);
}
