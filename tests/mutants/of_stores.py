"""Without a safeguard of TLS to the stores, of sessions of PostgreSQL, or of a cluster of RabbitMQ.
common/trust.c is one for RabbitMQ and Redis."""

from mutant import mutant

TRUST = "unit_test_trust::"
TRANSPORT = "unit_test_transport::"
RABBIT = "unit_test_rabbit_publisher::"
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
]
