"""Without a check of who may do what."""

from mutant import mutant

ACCESS = "tests/e2e/test_e2e_access.py::"
GOOD, BAD = ACCESS + "test_what_is_good", ACCESS + "test_what_is_bad"
GATE = "gateway/gate/gate.c"

ADMIN = "tests/e2e/test_e2e_admin.py::"

KNOWN = "tests/e2e/test_e2e_known.py::"
AUTH = "tests/e2e/test_e2e_auth.py::"
API_KEYS = "unit_test_api_keys::"

MUTANTS = [
    mutant(
        "access",
        "the question before a key is refused",
        GATE,
        "\tanswer->may_be_new = is_new && is_asked == 0 &&",
        "\tanswer->may_be_new = is_new && is_asked > 1 &&",
        KNOWN + "test_a_key",
    ),
    mutant(
        "access",
        "the question before coupon-admin refuses a key",
        "admin/access.c",
        "\tif (is_new && is_asked == 0)\n",
        "\tif (is_new && is_asked > 1)\n",
        "tests/e2e/test_e2e_admin.py::test_a_new_key_is_good_at_once",
    ),
    mutant(
        "access",
        "the question before coupon-admin lets a key in",
        "admin/access.c",
        "return is_asked ? ACCESS_OK : ACCESS_KNOWN;",
        "return ACCESS_OK;",
        "tests/e2e/test_e2e_admin.py::test_a_key_that_is_revoked",
    ),
    mutant(
        "access",
        "the wait until gateways know that a key is revoked",
        "ctl/key.c",
        "\t\tstatus = store_gateways_wait(db, redis, STORE_NEWS_KEYS);\n",
        "\t\tstatus = 0;\n",
        KNOWN + "test_a_gateway_that_does_not_tell_is_named",
    ),
    mutant(
        "answers",
        "the wait until gateways know a set of codes",
        "ctl/codes/codes.c",
        "\tstatus = store_gateways_wait(db, redis, STORE_NEWS_CODES);\n",
        "\tstatus = 0;\n",
        KNOWN + "test_codes",
    ),
    mutant(
        "answers",
        "the answers that a gateway forgets when something has changed",
        "gateway/admit/admission.c",
        "\tadmission->forgets++;\n",
        "\tadmission->forgets += 0;\n",
        "unit_test_admission_memory::test_memory_is_forgotten",
    ),
    mutant(
        "answers",
        "the question that was sent before something has changed",
        "gateway/admit/admission.c",
        "\tcoupon->memory_forgets = forgets;\n",
        "\tcoupon->memory_forgets = admission->forgets + 0 * forgets;\n",
        "unit_test_admission_memory::test_memory_is_forgotten",
    ),
    mutant(
        "operators",
        "the settings of Redis that an operator has acknowledged",
        "common/program/durability.c",
        "\tif (part == DURABILITY_REDIS && durability->is_acknowledged)\n",
        "\tif (part == DURABILITY_REDIS && 0 * durability->is_acknowledged)\n",
        "tests/e2e/test_e2e_arm.py::test_redis_does_not_show_its_settings",
        "tests/e2e/test_e2e_durability.py::test_an_operator_has_acknowledged_it",
    ),
    mutant(
        "operators",
        "the warning that does not make a check fail",
        "ctl/campaign/arm.c",
        "\tarm->warnings_n = arm->durability.unknown[DURABILITY_REDIS];\n",
        "\tarm->warnings_n = 0 * arm->durability.unknown[DURABILITY_REDIS];\n",
        "tests/e2e/test_e2e_arm.py::test_redis_does_not_show_its_settings",
    ),
    mutant(
        "readiness",
        "the script that no stranger sends",
        "common/redis/link.c",
        "\tprocess_read(link);\n}\n\nstatic void on_connect(",
        "\tredis_link_script_load(link);\n\tprocess_read(link);\n}\n\nstatic void on_connect(",
        "tests/e2e/test_e2e_logins.py::test_redis_without_its_password",
        waits=True,
    ),
    mutant(
        "readiness",
        "a gateway that is ready without PostgreSQL",
        "gateway/gateway.c",
        "\treturn !redis && !own;\n",
        "\treturn !redis && !own && !lookup_trouble(gateway->lookup);\n",
        "tests/e2e/test_e2e_http_metrics.py::test_readyz_names_what_is_away",
    ),
    mutant(
        "readiness",
        "connections that follow the limit of descriptors",
        "gateway/kernel.c",
        "\tconfig->connections_max = left > 0 ? left : 1;\n",
        "\t(void)left;\n",
        "tests/e2e/test_e2e_limits.py::test_connections_follow_the_limit_of_descriptors",
    ),
    mutant(
        "access",
        "who asked, in the access log",
        "gateway/listen/access.c",
        "\t\tline.key = request->by; /* the connection may be another one's by now */\n",
        "",
        "tests/e2e/test_e2e_log.py::test_each_request_is_logged_once",
    ),
    mutant(
        "access",
        "the role that an operation of coupon-admin needs",
        "admin/access.c",
        "(role == KEY_ROLE_ADMIN ? 0 : KEY_ROLE_MONITOR)",
        "KEY_ROLE_MONITOR",
        ADMIN + "test_each_route_and_each_role",
    ),
    mutant(
        "access",
        "the coupons of a key of coupon-admin",
        "admin/access.c",
        " || !key_has_coupon(key, id)))",
        "))",
        ADMIN + "test_a_key_of_some_coupons",
    ),
    mutant(
        "access",
        "the budgets of a key of coupon-admin",
        "admin/access.c",
        "return !about->budget || key_has_budget(key, about->budget);",
        "return 1;",
        ADMIN + "test_a_key_of_some_coupons_spends_no_other_budget",
        ADMIN + "test_each_name_and_each_scope",
    ),
    mutant(
        "access",
        "the budget that a member names",
        "admin/operation.c",
        'budget = words_option(&words, "budget");',
        "budget = NULL;",
        ADMIN + "test_a_key_of_some_coupons_spends_no_other_budget",
        ADMIN + "test_each_name_and_each_scope",
    ),
    mutant(
        "P9",
        "the sessions that a key may have",
        "admin/access.c",
        "if (own_n >= SESSIONS_OF_KEY_MAX)",
        "if (own_n >= SESSIONS_MAX)",
        ADMIN + "test_sessions_have_a_share_per_key",
    ),
    mutant(
        "P9",
        "the streams that a key may have",
        "admin/live.c",
        "if (of_key_n >= LIVE_LOOKERS_OF_KEY_MAX)",
        "if (of_key_n >= LIVE_LOOKERS_MAX)",
        ADMIN + "test_streams_have_a_share_per_key",
    ),
    mutant(
        "P9",
        "the campaigns that one key may look at",
        "admin/live.c",
        "if (asked_n + looker->asked_n > LIVE_ASKED_OF_KEY_MAX)",
        "if (asked_n > LIVE_ASKED_OF_KEY_MAX)",
        ADMIN + "test_streams_have_a_share_per_key",
    ),
    mutant(
        "access",
        "the words that an admin alone may read",
        "admin/route.c",
        "if (!(visitor->roles & KEY_ROLE_ADMIN) && ",
        "if (!visitor->roles && ",
        ADMIN + "test_words_are_for_those_who_may_have_codes",
    ),
    mutant(
        "access",
        "the token of a change by a session",
        "admin/access.c",
        "if (is_change && (strlen(token)",
        "if (is_change < 0 && (strlen(token)",
        ADMIN + "test_a_session",
    ),
    mutant(
        "access",
        "the key that is judged again when its command has waited",
        "admin/operation.c",
        "return access_check_again(",
        "return 1 || access_check_again(",
        ADMIN + "test_a_key_that_is_revoked_while_its_command_waits",
    ),
    mutant(
        "access",
        "the places that are left to changes",
        "admin/child.c",
        "children->lanes[0].running_max = limits->looking_max;",
        "children->lanes[0].running_max = limits->running_max;",
        ADMIN + "test_more_than_it_may_run_at_once",
        waits=True,
    ),
    mutant(
        "access",
        "the changes that go on after SIGTERM",
        "admin/child.c",
        "if (child->task.changes || !child->pid)",
        "if (!child->pid)",
        ADMIN + "test_the_end_waits_for_changes",
    ),
    mutant(
        "access",
        "the key that is not sent in the clear",
        "admin/scrape.c",
        "!*config->tls_ca && !host_is_loopback(host) &&",
        "!*config->tls_ca && !host_is_loopback(host) && 0 &&",
        ADMIN + "test_settings_that_are_refused",
    ),
    mutant(
        "access",
        "the arguments of a command that are no options",
        "admin/route.c",
        "if (*text == '-' || !*text)",
        "if (!*text)",
        ADMIN + "test_what_is_wrong_with_a_request",
    ),
    mutant(
        "access",
        "the identity that each request needs",
        GATE,
        "return gate->is_required ? ANSWER_UNAUTHORIZED : ANSWER_OK;",
        "return ANSWER_OK;",
        GOOD,
    ),
    mutant(
        "access",
        "the role that an operation needs",
        GATE,
        "\tif (key && !(key->roles & allowed[request->op].roles))\n\t\treturn 0;\n",
        "",
        GOOD,
    ),
    mutant(
        "access",
        "the name of another one, in which an admin alone may ask",
        GATE,
        "*request->use->use.by && !(key->roles & KEY_ROLE_ADMIN)",
        "*request->use->use.by && !(key->roles & KEY_ROLE_ADMIN) && 0",
        ACCESS + "test_in_the_name_of_another",
    ),
    mutant(
        "access",
        "the operations that are not for users",
        GATE,
        "\tif (token && !allowed[request->op].is_for_users)\n\t\treturn 0;\n",
        "",
        GOOD,
    ),
    mutant(
        "access",
        "the user of a token",
        GATE,
        "!user_id_same(&request->user, &token->user)",
        "request->user.len > USER_ID_MAX",
        GOOD,
    ),
    mutant(
        "access",
        "the coupons of who asks",
        GATE,
        "return !request->coupon || identity_has_coupon(identity, request->coupon);",
        "return request->coupon >= 0;",
        GOOD,
    ),
    mutant(
        "access",
        "the coupons of a token",
        "gateway/gate/token.c",
        "\treturn token->is_for_all;",
        "\treturn 1;",
        GOOD,
        "unit_test_token_claims::test_what_a_token_allows",
    ),
    mutant(
        "access",
        "the role of a monitor",
        GATE,
        "identity->grant.key->roles & KEY_ROLE_MONITOR",
        "identity->grant.key->roles",
        GOOD,
    ),
    mutant(
        "access",
        "the end of what was presented before",
        GATE,
        "\tidentity_forget(identity);\n\tanswer->may_be_new = 0;\n",
        "\tanswer->may_be_new = 0;\n",
        ACCESS + "test_what_is_bad_takes_away_what_was_good",
    ),
    mutant(
        "access",
        "the identity that each request over HTTP presents anew",
        "gateway/listen/intake.c",
        "\t\tidentity_forget(&client->responder.identity);\n",
        "",
        ACCESS + "test_each_request_over_http_presents_its_own",
    ),
    mutant(
        "access",
        "the refusal of what is not good over HTTP",
        "gateway/listen/intake.c",
        "\tif (answer.answer == ANSWER_OK)\n\t\treturn 0;\n\tif (answer.may_be_new) {",
        "\tif (answer.answer != ANSWER_RATE_LIMITED)\n\t\treturn 0;\n\tif (answer.may_be_new) {",
        BAD,
    ),
    mutant(
        "access",
        "the expiry that a token must have",
        "gateway/gate/token.c",
        'if (date_read(member(claims, "exp"), &token->until_ms) ||',
        'token->until_ms = INT64_MAX / 2;\n\tif ((member(claims, "exp") &&'
        ' date_read(member(claims, "exp"), &token->until_ms)) ||',
        BAD,
        "unit_test_token_claims::test_claims",
    ),
    mutant(
        "access",
        "the coupons of a key",
        "common/keys.c",
        "return !key->coupons || bsearch(",
        "return key->coupons || !key->coupons || bsearch(",
        GOOD,
    ),
    mutant(
        "access",
        "the age of what is known of keys",
        GATE,
        "now_ms - gate->told_ms <= gate->config->keys_stale_s * 1000;",
        "now_ms >= gate->told_ms;",
        "tests/e2e/test_e2e_auth.py::test_keys_while_a_store_is_away",
        waits=True,
    ),
    mutant(
        "access",
        "the gateway's LISTEN for changes of keys",
        "gateway/read/lookup.c",
        "\tif (lookup->keys_notified)\n\t\tlookup_ask(",
        "\tif (!lookup->keys_notified)\n\t\tlookup_ask(",
        "tests/e2e/test_e2e_auth.py::test_a_notification_is_faster_than_asking",
    ),
    mutant(
        "access",
        "what is left of a rate in the reply of HTTP",
        "gateway/listen/http_reply.c",
        '"\\r\\nRateLimit: ");',
        '"\\r\\nRateLimit-State: ");',
        "tests/e2e/test_e2e_auth.py::test_rate_of_a_key",
    ),
    mutant(
        "PROXY",
        "the networks that the PROXY protocol is taken from",
        "gateway/listen/arrival.c",
        "if (networks_have_address(&arrivals->balancers, address)) {",
        "if (*arrivals->config->proxy_from) {",
        "tests/e2e/test_e2e_proxy.py::test_others_have_no_header",
    ),
    mutant(
        "access",
        "the certificate of who watches a worker",
        "worker/monitor.c",
        "|| web_is_certified(request);",
        "|| web_is_certified(request) >= 0;",
        "tests/e2e/test_e2e_tls.py::test_operators_of_a_worker_have_certificates",
    ),
    mutant(
        "P11",
        "the second after which nothing is begun for who has gone",
        "gateway/listen/request.c",
        "(now_us - request->begun_us) / 1000 >= ABANDONED_MS;",
        "(now_us - request->begun_us) / 1000 >= 60 * ABANDONED_MS;",
        "unit_test_admission::test_those_who_have_left",
    ),
    mutant(
        "access",
        "the coupon of each receive that an order names",
        "gateway/gate/gate.c",
        "if (!identity_has_coupon(identity, request->use->receives[i].coupon))",
        "if (!identity_has_coupon(identity, request->coupon))",
        "tests/e2e/test_e2e_use.py::test_a_key_of_some_coupons",
    ),
    mutant(
        "limits", "the signatures that are not looked at, of who guesses", GATE,
        "answer->verdict.wait_us == 0 ||", "answer->verdict.wait_us >= 0 ||",
        AUTH + "test_wrong_tokens_hold_back_their_address",
    ),  # fmt: skip
    mutant(
        "limits", "the tokens that go on beside those of who guesses", GATE,
        " || tokens_remember(gate->tokens, text, len))", ")",
        AUTH + "test_wrong_tokens_hold_back_their_address",
    ),  # fmt: skip
    mutant(
        "limits", "the rate of a user", GATE,
        "\t\t\t  gate->config->rate_user);", "\t\t\t  0 * gate->config->rate_user);",
        AUTH + "test_rate_of_a_user",
    ),  # fmt: skip
    mutant(
        "limits", "the key that has no rate of its address", GATE,
        "\tif (!key && !responder->is_local)", "\tif (!responder->is_local)",
        AUTH + "test_rate_of_a_user",
    ),  # fmt: skip
    mutant(
        "limits", "the balancer that has no rate of its address", GATE,
        "\tif (!key && !responder->is_local)", "\tif (!key)",
        "tests/e2e/test_e2e_proxy.py::test_the_balancer_itself",
    ),  # fmt: skip
    mutant(
        "limits", "the one of two limits that refuses for longer", "gateway/gate/limits.c",
        "if (!one.of || other.wait_us > one.wait_us)", "if (!one.of)",
        "unit_test_limits::test_two_that_refuse",
    ),  # fmt: skip
    mutant(
        "limits", "the hash 0, which no free entry has", "gateway/gate/word_table.c",
        "return key ? key : 1;", "return key;",
        "unit_test_limits::test_key_0",
    ),  # fmt: skip
    mutant(
        "keys", "the state of a key that is found by its id", "common/keys.c",
        "\tverdict = entry_state(entry, now_ms);\n", "\tverdict = KEY_GOOD;\n",
        API_KEYS + "test_found_by_its_id",
    ),  # fmt: skip
    mutant(
        "keys", "the secret that nobody asks for who is known by an id", "common/keys.c",
        "\t\tgrant->is_by_id = 1;\n", "",
        API_KEYS + "test_found_by_its_id",
    ),  # fmt: skip
    mutant(
        "keys", "the coupons of a revoked key", "common/keys.c",
        "\tif (key->is_revoked)\n\t\treturn 0;\n\treturn !key->coupons", "\treturn !key->coupons",
        API_KEYS + "test_revoked_stays_revoked",
    ),  # fmt: skip
    mutant(
        "keys", "the shorter time of the secret before", "common/keys.c",
        "if (!is_own && entry->previous_until_ms < *until_ms)", "if (0 * is_own)",
        API_KEYS + "test_a_grant_lasts_until_its_time",
    ),  # fmt: skip
    mutant(
        "answers", "the codes that a gateway has not read, when it tells what it knows",
        "gateway/stores.c",
        "\tif (catalogue_has(known->catalogue, known->news_codes))\n", "",
        KNOWN + "test_a_gateway_that_cannot_read_codes_is_named",
    ),  # fmt: skip
    mutant(
        "answers", "the row of a gateway that has ended", "gateway/stores.c",
        "\t\tif (is_own(known) &&\n", "\t\tif (0 && is_own(known) &&\n",
        KNOWN + "test_a_gateway_that_has_ended_is_not_waited_for",
    ),  # fmt: skip
    mutant(
        "PROXY", "the address of IPv4 that a socket of IPv6 shows", "common/serve/network.c",
        "\tnetwork_unmap(&one);\n\treturn networks_have", "\treturn networks_have",
        "unit_test_peer::test_networks",
    ),  # fmt: skip
    mutant(
        "PROXY", "the bits of a network beyond its whole bytes", "common/serve/network.c",
        "^ address->bytes[whole]) & mask) == 0;", "^ address->bytes[whole]) & 0) == 0;",
        "unit_test_peer::test_networks",
    ),  # fmt: skip
    mutant(
        "HTTP", "the id of a request, which is made once", "gateway/listen/http_reply.c",
        "\tmanner->has_id = 1;\n", "",
        "tests/e2e/test_e2e_http_headers.py::test_what_failed_is_in_the_log_by_its_name",
    ),  # fmt: skip
    mutant(
        "HTTP", "the body that is too long in pieces", "gateway/listen/http_request.c",
        "if (len > request->body_limit - request->texts[TEXT_BODY].len)",
        "if (len > request->body_limit)",
        "unit_test_http_request::test_refused_requests",
    ),  # fmt: skip
]
