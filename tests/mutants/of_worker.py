"""Without a safeguard of the worker, the keeper or couponctl."""

from mutant import mutant

SETTLEMENT = "unit_test_settlement::"
REFUSED = "unit_test_settlement_refused::"
LOCKED = "unit_test_settlement_locked::"
FORWARDED = "unit_test_settlement_forwarded::"
OUTBOXES = "unit_test_outboxes::"
KEEPER = "unit_test_keeper_parts::"
RESEND = "unit_test_resend::"
WEBHOOK = "unit_test_webhook::"
HISTORIES = "unit_test_settlement_history::test_random_histories"
FAILURES = "tests/e2e/test_e2e_failures.py::"
OUTBOX = "tests/e2e/test_e2e_outbox.py::"
INSTALLATION = "tests/e2e/test_e2e_installation.py::"

MUTANTS = [
    mutant(
        "P3",
        "the ack after COMMIT",
        "common/rabbit/topology.c",
        "\t\t\t   source->prefetch == 0, 0, amqp_empty_table);",
        "\t\t\t   1, 0, amqp_empty_table);",
        FAILURES + "test_a_worker_killed_between_commit_and_ack",
    ),
    mutant(
        "P3",
        "the ack of what is settled alone",
        "worker/consume/transaction.c",
        "\ttransaction_end(settlement, ENDED_UNKNOWN, NULL);\n}\n\nvoid settlement_refuse",
        "\ttransaction_end(settlement, ENDED_COMMITTED, NULL);\n}\n\nvoid settlement_refuse",
        SETTLEMENT + "test_retry_acks_nothing",
        HISTORIES,
    ),
    mutant(
        "P3",
        "the retry of a transaction whose end is unknown",
        "worker/settle/settler.c",
        "\tcase DATABASE_LOST:\n\t\ttransaction_retry(settler, now_ms);\n",
        "\tcase DATABASE_LOST:\n\t\tsettlement_commit(settler->settlement);\n",
        FAILURES + "test_a_transaction_cut_in_its_middle",
    ),
    mutant(
        "P3",
        "the older deliveries that an ack of several must wait for",
        "worker/consume/settlement.c",
        "\t\twhile (parcel->left > 0)\n\t\t\tparcel = parcel->newer;\n\t\t*tag = parcel->tag;\n",
        "\t\twhile (parcel->left > 0)\n\t\t\tparcel = parcel->newer;\n\t\t*tag = parcel->tag;\n"
        "\t\t*multiple = 1;\n",
        SETTLEMENT + "test_dead_holds_the_prefix_back",
        HISTORIES,
    ),
    mutant(
        "P3",
        "the acks of a connection that was lost",
        "worker/consume/settlement.c",
        "\tif (epoch != settlement->epoch)\n\t\treturn NULL;\n",
        "",
        SETTLEMENT + "test_reset_forgets_and_never_acks",
    ),
    mutant(
        "P3",
        "the confirm, before a dead letter is acked",
        "worker/consume/settlement.c",
        "\t\tbooks_set_state(settlement, delivery, DELIVERY_DEAD);\n\t\treturn;\n",
        "\t\tbooks_set_state(settlement, delivery, DELIVERY_DONE);\n\t\treturn;\n",
        SETTLEMENT + "test_dead_holds_the_prefix_back",
        HISTORIES,
    ),
    mutant(
        "P3",
        "the refused receives of a message that stay in the outbox",
        "worker/consume/delivery.c",
        "return delivery->end == delivery->message->receives_n && delivery->bad_n == 0;",
        "return delivery->end == delivery->message->receives_n;",
        "unit_test_worker_parts::test_settled_by_its_last_part",
        OUTBOX + "test_a_message_of_which_one_receive_is_refused_stays",
    ),
    mutant(
        "P3",
        "the whole message that must be settled, before it leaves the outbox",
        "worker/consume/delivery.c",
        "return delivery->end == delivery->message->receives_n && delivery->bad_n == 0;",
        "return delivery->bad_n == 0;",
        "unit_test_worker_parts::test_settled_by_its_last_part",
    ),
    mutant(
        "P3",
        "the rescue of a message that was delivered often",
        "worker/worker.c",
        "int is_rescued = envelope->delivery_count >= RESCUE_FROM_DELIVERIES;",
        "int is_rescued = 0;",
        "tests/e2e/test_e2e_delivery_limit.py::test_a_message_is_rescued_before_the_limit",
    ),
    mutant(
        "P4",
        "the comparison of the numbers of Redis and PostgreSQL",
        "keeper/coupon_state.c",
        "\treturn look->total - look->stock - look->reserved - look->lost - look->seq ==\n"
        "\t       row->issued - row->settled + known;\n",
        "\treturn look != NULL && row != NULL && known >= 0;\n",
        KEEPER + "test_equal_while_things_happen",
        "tests/e2e/test_e2e_keeper.py::test_numbers_that_do_not_add_up_are_told_once",
    ),
    mutant(
        "P4",
        "the taken slots that audit counts",
        "ctl/audit/pass.c",
        "\tif (over >= 0 && over <= most + freed)\n",
        "\tif (over >= -most - pass->counted)\n",
        "tests/e2e/test_e2e_audit.py::test_finds_at_rest",
    ),
    mutant(
        "P9",
        "the bound of what a worker holds of locked coupons",
        "worker/consume/locked.c",
        "\t\t       ? DELIVERY_PUT_OFF\n\t\t       : DELIVERY_PARKING;\n",
        "\t\t       ? DELIVERY_PUT_OFF\n\t\t       : DELIVERY_PUT_OFF;\n",
        FORWARDED + "test_a_locked_coupon_never_fills_the_worker",
    ),
    mutant(
        "P9",
        "the watchdog of calls that hang",
        "common/rabbit/watchdog.c",
        "\t\tshutdown(watch->fd, SHUT_RDWR);\n\t\twatch->begun_ms = 0;\n",
        "\t\twatch->begun_ms = 0;\n",
        "unit_test_watchdog::test_only_a_call_that_hangs_is_ended",
    ),
    mutant(
        "P10",
        "the number of a transaction in Redis, before its messages leave the outbox",
        "worker/outbox/outboxes.c",
        "if (rc == 0 && !is_over(outboxes))",
        "if (!is_over(outboxes))",
        OUTBOXES + "test_without_the_copy_nothing_is_removed",
        OUTBOXES + "test_a_redis_that_is_not_its_own",
    ),
    mutant(
        "P10",
        "the copies that are sent again",
        "keeper/resend.c",
        "\tif (queue_is_empty(resend, now_ms) && !is_settling(resend, entry, now_ms))\n"
        "\t\treturn pass_begin(entry, RESEND_ALL, now_ms);\n",
        "",
        RESEND + "test_empty_queue",
        "tests/e2e/test_e2e_broker_lost.py::test_all_that_was_confirmed_is_lost",
    ),
    mutant(
        "P10",
        "the receives that later ones have overtaken",
        "keeper/resend.c",
        "return may_be_overtaken(entry) ? pass_begin(entry, RESEND_OVERTAKEN, now_ms) : NULL;",
        "return may_be_overtaken(entry) ? NULL : NULL;",
        RESEND + "test_overtaken",
    ),
    mutant(
        "P10",
        "the gate that is closed while PostgreSQL is behind",
        "worker/settle/gate.c",
        "\tif (gate->is_open)\n\t\treturn 1;\n",
        "\tif (gate->is_open || gate->is_own)\n\t\treturn 1;\n",
        "tests/e2e/test_e2e_stores_lost.py::"
        "test_what_arrives_while_postgresql_is_behind_is_settled_after_the_recovery",
    ),
    mutant(
        "P10",
        "the rebuild of a coupon that Redis has lost",
        "keeper/coupon_state.c",
        "\tif (row->generation > 0 || row->issued > 0 || look->users_present ||"
        " look->outbox_n > 0)\n",
        "\tif (row->issued > 0)\n",
        "unit_test_worker_parts::test_action_absent",
    ),
    mutant(
        "P10",
        "the generation of PostgreSQL, when an action is chosen",
        "keeper/coupon_state.c",
        "\tif (look->generation < row->generation || look->placeholder || look->flagged ||\n",
        "\tif (look->placeholder || look->flagged ||\n",
        "unit_test_worker_parts::test_action_rebuild",
    ),
    mutant(
        "P10",
        "the time for gateways to report, after Redis was restarted",
        "keeper/stores.c",
        "\t\tcontext->may_open = 0;\n\telse if (n > 0)",
        "\t\tcontext->may_open = 1;\n\telse if (n > 0)",
        "tests/e2e/test_e2e_coming_back.py::test_a_known_gateway_that_is_frozen_is_waited_for",
    ),
    mutant(
        "P10",
        "the grace, before a campaign is closed",
        "keeper/close.c",
        "now_ms >= row->end_ms + CLOSE_GRACE_MS;",
        "now_ms >= row->end_ms - CLOSE_GRACE_MS;",
        KEEPER + "test_close_due",
    ),
    mutant(
        "P10",
        "the installation of a message",
        "worker/worker.c",
        "\tif (is_of_another(worker, envelope))\n",
        "\tif (!worker && is_of_another(worker, envelope))\n",
        INSTALLATION + "test_a_message_of_another_installation_goes_to_the_dead_letters",
    ),
    mutant(
        "P10",
        "the installation of Redis",
        "common/changes.c",
        "\t\t\t\t\t\t\t\t      : RELATION_FOREIGN;\n",
        "\t\t\t\t\t\t\t\t      : RELATION_OWN;\n",
        "unit_test_changes::test_relation",
        INSTALLATION + "test_a_worker_of_another_database_changes_nothing",
    ),
    mutant(
        "P11",
        "the message that PostgreSQL refuses alone",
        "worker/consume/transaction.c",
        "enum ending ending = settlement->taken_n == 1 ? ENDED_REFUSED_ALONE : ENDED_UNKNOWN;",
        "enum ending ending = ENDED_REFUSED_ALONE;",
        REFUSED + "test_bisect_finds_each_poison",
        HISTORIES,
    ),
    mutant(
        "P11",
        "the locked coupon that is put off alone",
        "worker/consume/locked.c",
        "\t\tif (is_locked(look, coupons->ids[i]))\n\t\t\tcoupon_put_off(",
        "\t\tif (look)\n\t\t\tcoupon_put_off(",
        LOCKED + "test_many_locked_coupons_are_put_off_together",
    ),
    mutant(
        "P11",
        "the time that slow trials leave to the others",
        "worker/consume/transaction.c",
        "settlement->waiting_first_ms = now_ms + (now_ms - settlement->taken_ms);",
        "settlement->waiting_first_ms = now_ms;",
        LOCKED + "test_slow_trials_leave_time_to_the_others",
    ),
    mutant(
        "events",
        "the confirm, before an event leaves the log",
        "events/outlet.c",
        "\tif (!why && outlet->failed)\n",
        "\tif (0)\n",
        "tests/e2e/test_e2e_events.py::test_a_queue_that_refuses_is_tried_again",
    ),
    mutant(
        "events",
        "the private networks that a webhook may not lead to",
        "events/endpoint.c",
        '\t{ "10.0.0.0/8", "private" },\n',
        "",
        WEBHOOK + "test_addresses",
    ),
    mutant(
        "events",
        "the look at the address that libcurl connects to",
        "events/post.c",
        "\tconst char *kind = networks_refusal(&post->rules->networks, &address->addr);\n",
        "\tconst char *kind = NULL;\n",
        "tests/e2e/test_e2e_webhook_failures.py::"
        "test_a_name_that_is_not_resolved_and_then_leads_inside",
    ),
    mutant(
        "events",
        "the certificate of a webhook",
        "events/post.c",
        "\tSET(post, CURLOPT_SSL_VERIFYPEER, 1L);\n\tSET(post, CURLOPT_SSL_VERIFYHOST, 2L);\n",
        "\tSET(post, CURLOPT_SSL_VERIFYPEER, 0L);\n\tSET(post, CURLOPT_SSL_VERIFYHOST, 0L);\n",
        "tests/e2e/test_e2e_webhook_failures.py::test_certificates_are_verified",
    ),
    mutant(
        "events",
        "the newest secret in a signature",
        "events/signature.c",
        "\tfor (; *secrets && rc == 0; n++) {\n",
        "\tif (strchr(secrets, ' '))\n\t\tsecrets = strchr(secrets, ' ') + 1;\n"
        "\tfor (; *secrets && rc == 0; n++) {\n",
        WEBHOOK + "test_signatures_of_several_secrets",
        "tests/e2e/test_e2e_webhook.py::test_a_new_secret_overlaps_the_old_one",
    ),
]
