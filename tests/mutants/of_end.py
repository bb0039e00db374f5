"""Without a safeguard of the end of a gateway."""

from mutant import mutant

DRAIN = "tests/e2e/test_e2e_drain.py::"
AT_THE_END = DRAIN + "test_at_the_end_connections_are_refused_and_who_waits_for_nothing_is_told"
BALANCER = "tests/e2e/test_e2e_balancer.py::"

REPEATED = "tests/e2e/test_e2e_repeated.py::"
TEXT = "tests/e2e/test_e2e_text.py::"

MUTANTS = [
    mutant(
        "commands",
        "what a command with the same key has made",
        "ctl/store.c",
        'if (!db_is_true(row, 0, "is_new"))',
        "if (0)",
        REPEATED + "test_repeated_with_a_key",
        REPEATED + "test_a_secret_is_not_rotated_twice",
    ),
    mutant(
        "commands",
        "the comparison of the words of a key",
        "ctl/store.c",
        'if (!db_is_true(row, 0, "is_same"))',
        "if (0)",
        REPEATED + "test_a_key_with_other_words",
        REPEATED + "test_the_content_of_a_file_counts_as_a_word",
    ),
    mutant(
        "commands",
        "the exit status of a change whose output is lost",
        "ctl/output.c",
        "\t\tlog_fatal_status(CTL_UNKNOWN);\n",
        "\t\t;\n",
        REPEATED + "test_output_that_cannot_be_written",
    ),
    mutant(
        "commands",
        "the check of control characters in words",
        "ctl/args.c",
        "if (!text_is_plain(text, strlen(text)))",
        "if (0)",
        TEXT + "test_control_characters_are_refused_at_the_door",
    ),
    mutant(
        "commands",
        "the escape of control characters on a terminal",
        "ctl/args.c",
        "if (is_control(text, len, i))",
        "if (0)",
        TEXT + "test_what_is_there_is_escaped_on_the_way_out",
    ),
    mutant(
        "P7",
        "the end of a connection of HTTP, while the gateway drains",
        "gateway/listen/http_connection.c",
        "(intake_is_draining(intake) && surplus_length(connection) == 0)",
        "(0 * intake_is_draining(intake))",
        DRAIN + "test_http_tells_its_clients_to_leave",
        waits=True,
    ),
    mutant(
        "P7",
        "the replies to what was sent ahead over HTTP, while the gateway drains",
        "gateway/listen/http_connection.c",
        "(intake_is_draining(intake) && surplus_length(connection) == 0)",
        "intake_is_draining(intake)",
        DRAIN + "test_http_answers_what_was_sent_ahead",
    ),
    mutant(
        "P7",
        "the end of a connection of lines behind its last reply, when the gateway ends",
        "gateway/listen/server.c",
        "\t\tconn->ended = 1;\n\t\tconn_reap(conn);\n",
        "",
        AT_THE_END,
        waits=True,
    ),
    mutant(
        "P7",
        "the half of a connection of lines that stays open, when the gateway ends",
        "gateway/listen/server.c",
        "\tif (intake_is_stopped(conn->server->intake) && !conn->at_end)\n",
        "\tif (0 * intake_is_stopped(conn->server->intake))\n",
        AT_THE_END,
    ),
    mutant(
        "P9",
        "the closed listeners of a gateway that ends",
        "common/serve/loop.c",
        "\tclose(evconnlistener_get_fd(listener));\n",
        "",
        AT_THE_END,
        waits=True,
    ),
    mutant(
        "P9",
        "the closed listeners of its parent",
        "gateway/main.c",
        "\tclose(processes->sockets->api[0]);\n\tclose(processes->sockets->http);\n",
        "",
        AT_THE_END,
        waits=True,
    ),
    mutant(
        "readiness",
        "the 503 of a gateway that drains",
        "gateway/gateway.c",
        "\tint all = gateway->drain_until_ms == 0;\n",
        "\tint all = gateway->stop_by_ms == 0;\n",
        DRAIN + "test_everything_is_served_while_it_drains",
        DRAIN + "test_all_processes_drain",
        BALANCER + "test_one_that_drains_keeps_its_connections_and_gets_no_new_ones",
        waits=True,
    ),
    mutant(
        "readiness",
        "the second signal that one of several processes gets with the first",
        "gateway/gateway.c",
        "\t\tif (gateway->config->processes > 1)\n\t\t\treturn;\n",
        "",
        DRAIN + "test_all_processes_drain",
    ),
    mutant(
        "readiness",
        "the second signal, for all processes",
        "gateway/main.c",
        "processes_signal(processes, signals < 3 ? GATEWAY_FINISH : GATEWAY_GIVE_UP);",
        "(void)signals;",
        DRAIN + "test_all_processes_drain",
        waits=True,
    ),
    mutant(
        "readiness",
        "the end of processes without a parent",
        "gateway/main.c",
        "prctl(PR_SET_PDEATHSIG, GATEWAY_FINISH);",
        "prctl(PR_SET_PDEATHSIG, SIGTERM);",
        DRAIN + "test_without_their_parent_the_processes_do_not_drain",
        waits=True,
    ),
]
