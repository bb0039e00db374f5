"""Without a check of who may do what."""

from mutant import mutant

ACCESS = "tests/e2e/test_e2e_access.py::"
GOOD, BAD = ACCESS + "test_what_is_good", ACCESS + "test_what_is_bad"
GATE = "gateway/gate/gate.c"

MUTANTS = [
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
        "\tidentity_forget(identity);\n\tanswer->limits_n = 0;\n",
        "\tanswer->limits_n = 0;\n",
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
        "\tif (answer.answer == ANSWER_OK)\n\t\treturn 0;\n\tlimited_keep(",
        "\tif (answer.answer != ANSWER_RATE_LIMITED)\n\t\treturn 0;\n\tlimited_keep(",
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
        "gateway/gate/keys.c",
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
        "PROXY",
        "the networks that the PROXY protocol is taken from",
        "gateway/listen/arrival.c",
        "if (is_in(&arrivals->balancers, address)) {",
        "if (*arrivals->config->proxy_from) {",
        "tests/e2e/test_e2e_proxy.py::test_others_have_no_header",
    ),
]
