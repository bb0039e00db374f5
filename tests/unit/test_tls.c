/* The certificate of listeners: what is taken, what leaves the former one, what is resumed. */
#include "common/serve/tls.h"
#include "tests/unit/tls_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct tls_rig rig;

static int setup(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_fini(&rig);
	return 0;
}

/* Hands what one has written to the other. */
static void bytes_move(SSL *from, SSL *to)
{
	char bytes[4096];
	int n;

	while ((n = BIO_read(SSL_get_wbio(from), bytes, sizeof(bytes))) > 0)
		assert_int_equal(BIO_write(SSL_get_rbio(to), bytes, n), n);
}

static void memory_set(SSL *session)
{
	SSL_set_bio(session, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
}

/* Whether the two agree. */
static int shake(SSL *server, SSL *client)
{
	int done = 0;

	memory_set(server);
	memory_set(client);
	for (int i = 0; i < 6 && done != 2; i++) {
		done = SSL_do_handshake(client) == 1;
		bytes_move(client, server);
		done += SSL_do_handshake(server) == 1;
		bytes_move(server, client);
	}
	return done == 2;
}

static SSL_SESSION *kept;

static int on_session(SSL *client, SSL_SESSION *session)
{
	(void)client;
	SSL_SESSION_free(kept);
	kept = session;
	return 1;
}

static SSL_CTX *client_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());

	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT);
	SSL_CTX_sess_set_new_cb(context, on_session);
	return context;
}

/* Shakes hands; returns the common name of the server, "" after a failure. */
static const char *name_seen(const struct tls *tls, SSL_CTX *context, const char *protocols,
			     int *resumed)
{
	static char name[64];
	SSL *server = tls_session_new(tls, "http/1.1"), *client = SSL_new(context);
	X509 *one;
	char byte;

	name[0] = '\0';
	if (protocols)
		SSL_set_alpn_protos(client, (const unsigned char *)protocols,
				    (unsigned)strlen(protocols));
	if (kept)
		SSL_set_session(client, kept);
	SSL_set_connect_state(client);
	if (shake(server, client)) {
		one = SSL_get1_peer_certificate(client);
		X509_NAME_get_text_by_NID(X509_get_subject_name(one), NID_commonName, name,
					  sizeof(name));
		X509_free(one);
		SSL_read(client, &byte, 1); /* the ticket */
	}
	if (resumed)
		*resumed = SSL_session_reused(client);
	SSL_shutdown(client);
	SSL_free(server);
	SSL_free(client);
	return name;
}

static void test_reload(void **state)
{
	SSL_CTX *context = client_context();
	struct tls *tls;

	(void)state;
	rig_pair_write(&rig, "one", -DAY_S, DAY_S);
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, context, NULL, NULL), "one");
	assert_null(tls_trouble(tls));
	assert_in_range(tls_expires_s(tls), DAY_S - 60, DAY_S);

	rig_pair_write(&rig, "two", -DAY_S, 2 * DAY_S);
	tls_tick(tls, 1000);
	assert_string_equal(name_seen(tls, context, NULL, NULL), "two");
	assert_in_range(tls_expires_s(tls), 2 * DAY_S - 60, 2 * DAY_S);
	tls_free(tls);
	SSL_CTX_free(context);
}

/* Each leaves the former certificate in use, says why, and is mended by good files. */
static void test_bad_files(void **state)
{
	SSL_CTX *context = client_context();
	EVP_PKEY *other = rig_key_new();
	struct tls *tls;
	FILE *file;
	int64_t now_ms = 0;

	(void)state;
	rig_pair_write(&rig, "good", -DAY_S, DAY_S);
	tls = tls_new(&rig.config);
	alarm(60); /* none may block */
	for (int i = 0; i < 10; i++) {
		static const char *const expected[] = {
			"key values mismatch",
			"has expired",
			"not valid yet",
			"chmod 600",
			"COUPON_TLS_CERT",
			"no key of that certificate",
			"the key has a pass phrase",
			"COUPON_TLS_CERT is \"",
			"it is a named pipe",
			"it is too large",
		};

		rig_pair_write(&rig, "bad", i == 2 ? DAY_S : -2 * DAY_S,
			       i == 1 ? -DAY_S : 2 * DAY_S);
		if (i == 0)
			rig_key_write(rig.key, other);
		if (i == 3)
			assert_int_equal(chmod(rig.key, 0644), 0);
		if (i == 4)
			assert_int_equal(unlink(rig.cert), 0);
		if (i == 5) {
			file = fopen(rig.key, "w");
			assert_true(file && fputs("nothing", file) >= 0 && fclose(file) == 0);
		}
		if (i == 6) {
			file = fopen(rig.key, "w");
			assert_true(file &&
				    PEM_write_PrivateKey(file, other, EVP_aes_128_cbc(),
							 (unsigned char *)"secret", 6, NULL,
							 NULL) == 1 &&
				    fclose(file) == 0);
		}
		if (i == 7 || i == 8) {
			const char *path = i == 7 ? rig.cert : rig.key;

			assert_true(unlink(path) == 0 && mkfifo(path, 0600) == 0);
		}
		if (i == 9)
			assert_int_equal(truncate(rig.cert, 2 << 20), 0);
		tls_tick(tls, now_ms += 1000);
		assert_non_null(tls_trouble(tls));
		assert_non_null(strstr(tls_trouble(tls), expected[i]));
		assert_string_equal(name_seen(tls, context, NULL, NULL), "good");
		tls_tick(tls, now_ms += 1000);
		assert_non_null(tls_trouble(tls));
		assert_true(unlink(rig.key) == 0 && (i == 4 || unlink(rig.cert) == 0));
		rig_pair_write(&rig, "good", -DAY_S, DAY_S);
		tls_tick(tls, now_ms += 1000);
		assert_null(tls_trouble(tls));
	}
	alarm(0);
	tls_free(tls);
	EVP_PKEY_free(other);
	SSL_CTX_free(context);
}

/* A certificate that is in use may expire. */
static void test_expired(void **state)
{
	struct tls *tls;

	(void)state;
	rig_pair_write(&rig, "old", -2 * DAY_S, -DAY_S);
	tls = tls_new(&rig.config);
	assert_non_null(strstr(tls_trouble(tls), "has expired"));
	assert_true(tls_expires_s(tls) < 0);
	tls_free(tls);
}

static void test_protocols(void **state)
{
	SSL_CTX *context = client_context();
	struct tls *tls;

	(void)state;
	rig_pair_write(&rig, "one", -DAY_S, DAY_S);
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, context, "\x02h2\x08http/1.1", NULL), "one");
	assert_string_equal(name_seen(tls, context, "\x02h2", NULL), "");
	assert_string_equal(name_seen(tls, context, "\x08http/1.0", NULL), "");
	tls_free(tls);
	SSL_CTX_free(context);
}

static void test_versions(void **state)
{
	SSL_CTX *context = client_context();
	struct tls *tls;

	(void)state;
	rig_pair_write(&rig, "one", -DAY_S, DAY_S);
	SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, context, NULL, NULL), "one");
	tls_free(tls);
	rig.config.tls_min = (char *)"1.3";
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, context, NULL, NULL), "");
	tls_free(tls);
	SSL_CTX_set_security_level(context, 0);
	SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(context, TLS1_1_VERSION);
	rig.config.tls_min = (char *)"1.2";
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, context, NULL, NULL), "");
	tls_free(tls);
	SSL_CTX_free(context);
}

/* At another process with the same files, and after a reload, but not after a change. */
static void test_resumption(void **state)
{
	SSL_CTX *context = client_context();
	struct tls *tls, *other;
	int resumed;

	(void)state;
	rig_pair_write(&rig, "one", -DAY_S, DAY_S);
	tls = tls_new(&rig.config);
	other = tls_new(&rig.config);
	name_seen(tls, context, NULL, &resumed);
	assert_false(resumed);
	name_seen(tls, context, NULL, &resumed);
	assert_true(resumed);
	name_seen(other, context, NULL, &resumed);
	assert_true(resumed);
	tls_reload(tls);
	name_seen(tls, context, NULL, &resumed);
	assert_true(resumed);
	rig_pair_write(&rig, "two", -DAY_S, DAY_S);
	tls_reload(tls);
	assert_string_equal(name_seen(tls, context, NULL, &resumed), "two");
	assert_false(resumed);
	SSL_SESSION_free(kept);
	kept = NULL;
	tls_free(tls);
	tls_free(other);
	SSL_CTX_free(context);
}

/* Without a certificate there is nothing that could be valid. */
static void test_client_expiry(void **state)
{
	SSL_CTX *context = client_context();
	EVP_PKEY *key = rig_key_new();
	X509 *one = rig_certificate_new(key, "shop", -DAY_S, DAY_S);
	SSL *server, *client;
	struct tls *tls;

	(void)state;
	rig_pair_write(&rig, "server", -DAY_S, DAY_S);
	rig_certificate_write(rig.client_ca, one);
	rig.config.tls_client_ca = rig.client_ca;
	tls = tls_new(&rig.config);
	for (int i = 0; i < 2; i++) {
		if (i == 1) {
			SSL_CTX_use_certificate(context, one);
			SSL_CTX_use_PrivateKey(context, key);
		}
		server = tls_session_new(tls, "http/1.1");
		client = SSL_new(context);
		SSL_set_connect_state(client);
		assert_true(shake(server, client));
		if (i == 0)
			assert_int_equal(tls_client_expires_s(server), 0);
		else
			assert_in_range(tls_client_expires_s(server), DAY_S - 60, DAY_S);
		SSL_free(server);
		SSL_free(client);
	}
	SSL_SESSION_free(kept);
	kept = NULL;
	tls_free(tls);
	X509_free(one);
	EVP_PKEY_free(key);
	SSL_CTX_free(context);
}

/* A ticket of a client whose CA is no longer trusted is worth nothing. */
static void test_clients(void **state)
{
	SSL_CTX *context = client_context(), *stranger = client_context();
	EVP_PKEY *key = rig_key_new(), *wrong_key = rig_key_new();
	X509 *one = rig_certificate_new(key, "shop", -DAY_S, DAY_S);
	X509 *wrong = rig_certificate_new(wrong_key, "shop", -DAY_S, DAY_S);
	struct tls *tls;
	int resumed;

	(void)state;
	rig_pair_write(&rig, "server", -DAY_S, DAY_S);
	rig_certificate_write(rig.client_ca, one);
	rig.config.tls_client_ca = rig.client_ca;
	tls = tls_new(&rig.config);
	assert_string_equal(name_seen(tls, stranger, NULL, NULL), "server"); /* with none */
	assert_string_equal(name_seen(tls, stranger, NULL, &resumed), "server");
	assert_true(resumed);
	SSL_SESSION_free(kept);
	kept = NULL;
	SSL_CTX_use_certificate(stranger, wrong);
	SSL_CTX_use_PrivateKey(stranger, wrong_key);
	assert_string_equal(name_seen(tls, stranger, NULL, NULL), "");
	SSL_CTX_use_certificate(context, one);
	SSL_CTX_use_PrivateKey(context, key);
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		SSL_CTX_set_max_proto_version(context, version);
		assert_string_equal(name_seen(tls, context, NULL, NULL), "server");
		assert_non_null(kept);
		assert_string_equal(name_seen(tls, context, NULL, &resumed), "server");
		assert_false(resumed); /* a certificate is verified anew each time */
	}
	rig_certificate_write(rig.client_ca, wrong);
	tls_reload(tls);
	assert_string_equal(name_seen(tls, context, NULL, &resumed), "");
	SSL_SESSION_free(kept);
	kept = NULL;
	tls_free(tls);
	X509_free(one);
	X509_free(wrong);
	EVP_PKEY_free(key);
	EVP_PKEY_free(wrong_key);
	SSL_CTX_free(context);
	SSL_CTX_free(stranger);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expired, setup, teardown),
		cmocka_unit_test_setup_teardown(test_protocols, setup, teardown),
		cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resumption, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clients, setup, teardown),
		cmocka_unit_test_setup_teardown(test_client_expiry, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
