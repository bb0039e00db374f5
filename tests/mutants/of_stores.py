"""Without a safeguard of TLS to the stores, of sessions of PostgreSQL, or of a cluster of RabbitMQ.
common/trust.c is one for RabbitMQ and Redis."""

from mutant import mutant

TRUST = "unit_test_trust::"
TRANSPORT = "unit_test_transport::"
RABBIT = "unit_test_rabbit_publisher::"
REPLY = "unit_test_redis_reply::"
MIGRATE = "tests/sql/test_sql_migrate.py::"
HARMFUL = "tests/e2e/test_e2e_logins.py::test_settings_that_would_change_what_is_stored"

MUTANTS = [
    mutant(
        "sessions",
        "the encoding that each session sets",
        "common/postgres/session.c",
        "\"SET client_encoding = 'UTF8'; ",
        '"',
        HARMFUL,
    ),
    mutant(
        "sessions",
        "the search_path that each session sets",
        "common/postgres/session.c",
        "SET search_path = public, pg_temp;",
        "",
        MIGRATE + "test_the_tables_are_in_public_whatever_other_schema_comes_first",
    ),
    mutant(
        "sessions",
        "the check of the encoding of the database",
        "ctl/migrate.c",
        'if (strcmp(encoding, "UTF8") != 0)',
        "if (!*encoding)",
        MIGRATE + "test_a_database_that_is_not_utf8_is_refused",
    ),
    mutant(
        "TLS",
        "the certificate of RabbitMQ and Redis",
        "common/trust.c",
        "SSL_CTX_set_verify(context, SSL_VERIFY_PEER, on_verified);",
        "SSL_CTX_set_verify(context, SSL_VERIFY_NONE, on_verified);",
        TRUST + "test_refused",
        TRUST + "test_wildcards",
    ),
    mutant(
        "TLS",
        "the name in a certificate",
        "common/trust.c",
        "return *host && X509_VERIFY_PARAM_set1_host(param, host, 0);",
        "return *host;",
        TRUST + "test_refused",
        TRUST + "test_wildcards",
    ),
    mutant(
        "TLS",
        "the address in a certificate",
        "common/trust.c",
        "return X509_VERIFY_PARAM_set1_ip_asc(param, host);",
        "return 1;",
        TRUST + "test_refused",
        TRUST + "test_wildcards",
    ),
    mutant(
        "TLS",
        "the wildcard that stands for a whole label",
        "common/trust.c",
        "X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS",
        "0",
        TRUST + "test_wildcards",
    ),
    mutant(
        "TLS",
        "the common name that is no name of a host",
        "common/trust.c",
        "X509_CHECK_FLAG_NEVER_CHECK_SUBJECT",
        "0",
        TRUST + "test_wildcards",
    ),
    mutant(
        "TLS",
        "the files of libpq that are regular ones",
        "common/postgres/tls.c",
        "if (stat(path, &found) || S_ISREG(found.st_mode))",
        "if (stat(path, &found) || !S_ISDIR(found.st_mode))",
        "tests/e2e/test_e2e_store_tls.py::test_files_of_libpq_that_would_block",
    ),
    mutant(
        "TLS",
        "the pass phrase of a key of libpq",
        "common/program/program.c",
        "\tPQsetSSLKeyPassHook_OpenSSL(PQdefaultSSLKeyPassHook_OpenSSL);\n",
        "",
        "tests/e2e/test_e2e_store_tls.py::test_files_of_libpq_that_would_block",
    ),
    mutant(
        "sessions",
        "the failure that was told before",
        "common/rabbit/link.c",
        " || !backoff_tells(&link->backoff, why, now_ms))",
        ")",
        "tests/e2e/test_e2e_log.py::test_a_store_that_refuses_everybody_is_told_once",
    ),
    mutant(
        "TLS",
        "the versions of TLS",
        "common/trust.c",
        "\tif (!SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) ||",
        "\tSSL_CTX_set_security_level(context, 0);\n"
        "\tif (!SSL_CTX_set_min_proto_version(context, 0) ||",
        TRUST + "test_old_versions_are_refused",
    ),
    mutant(
        "TLS",
        "the certificate of PostgreSQL",
        "common/postgres/tls.c",
        'strcmp(mode, "verify-full") != 0',
        'strncmp(mode, "verify-", 7) != 0',
        TRANSPORT + "test_sslmode_of_a_url",
    ),
    mutant(
        "TLS",
        "the host of several that is another machine",
        "common/postgres/tls.c",
        "i < hosts_n || i < addresses_n",
        "i < 1 && i < hosts_n + addresses_n",
        TRANSPORT + "test_sslmode_of_a_url",
    ),
    mutant(
        "TLS",
        "the warning of a store without TLS",
        "common/program/transport.c",
        "if (!url->hosts[i].info.ssl && !host_is_loopback(",
        "if (!url->hosts[i].info.ssl && host_is_loopback(",
        TRANSPORT + "test_warnings",
    ),
    mutant(
        "TLS",
        "the rest of a record that is in OpenSSL",
        "common/postgres/tls.c",
        "while (ssl && SSL_pending(ssl) > 0)",
        "while (0 && ssl)",
        "unit_test_postgres_tls::test_all_of_a_record_is_taken",
    ),
    mutant(
        "P11",
        "the other nodes of RabbitMQ when one is down",
        "common/rabbit/connection.c",
        "i < url.hosts_n && !connection;",
        "i < 1 && !connection;",
        RABBIT + "test_hosts_of_a_cluster",
    ),
    mutant(
        "P11",
        "the random order of the nodes of RabbitMQ",
        "common/rabbit/connection.c",
        "\trabbit_url_shuffle(&url);\n",
        "",
        RABBIT + "test_hosts_of_a_cluster",
    ),
    mutant(
        "P11",
        "the queue that is there and is not bound again",
        "common/rabbit/topology.c",
        "return status || !is_new ? status :",
        "return status ? status :",
        RABBIT + "test_what_is_bound",
    ),
    mutant(
        "P11",
        "the prefetch that each consumer has for itself",
        "common/rabbit/topology.c",
        "0, source->prefetch, 0);",
        "0, source->prefetch, 1);",
        RABBIT + "test_a_link_of_two_sources",
    ),
    mutant(
        "P11",
        "the warning of a queue that lacks members",
        "common/rabbit/cluster.c",
        "if (members_n < wanted)",
        "if (members_n < 1)",
        "unit_test_rabbit_cluster::test_warnings",
    ),
    mutant(
        "P3", "the majority that names the master of a gateway", "common/redis/sentinel.c",
        "size_t needed = all->n / 2 + 1;", "size_t needed = 1;",
        "tests/e2e/test_e2e_sentinel.py::test_two_masters",
    ),  # fmt: skip
    mutant(
        "P3", "the beginning of a lease", "common/redis/redis.c",
        "lease->from_ms <= now_ms && now_ms", "now_ms",
        REPLY + "test_a_lease_holds_by_the_clock_of_its_master",
    ),  # fmt: skip
    mutant(
        "P11", "the refusal of a Redis that lacks replicas", "common/redis/redis.c",
        '\t{ "NOREPLICAS ", 1 },\n', "",
        REPLY + "test_errors_of_the_server",
    ),  # fmt: skip
    mutant(
        "P11", "the refusal of a Redis that a user may not ask", "common/redis/redis.c",
        '\t{ "NOPERM ", 0 },\n', "",
        REPLY + "test_errors_of_a_command",
    ),  # fmt: skip
    mutant(
        "P10", "the master that was promoted a moment ago", "common/redis/redis.c",
        'strspn(before, "0") == REDIS_RUN_ID_SIZE - 1 ? strtoll', "1 ? strtoll",
        REPLY + "test_process",
    ),  # fmt: skip
    mutant(
        "P10", "the cluster of a server, beside its timeline", "common/changes.c",
        " && strcmp(server->system, other->system) == 0;", ";",
        "unit_test_changes::test_the_server",
    ),  # fmt: skip
    mutant(
        "P10", "the numbers of PostgreSQL that never fall", "common/changes.c",
        "\t\tif (changes->num[i] < by->num[i])\n", "\t\tif (by->num[i])\n",
        "unit_test_changes::test_the_server",
    ),  # fmt: skip
]
