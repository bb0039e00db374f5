/* Findings of an audit: the place is whole, and no user ends its line or its string. */
#include "common/message/receive.h"
#include "ctl/audit/audit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static char printed[4096];

/* What one finding about this user prints. */
static const char *finding_text(const char *user_text, int as_json)
{
	struct audit audit = { .findings.json = as_json };
	const struct pass pass = { .audit = &audit, .coupon = INT64_MAX };
	struct slot slot = { .number = 100, .index = 255 };
	int saved = dup(STDOUT_FILENO);
	FILE *file = tmpfile();
	size_t n;

	assert_int_equal(user_id_parse(&slot.user, user_text, strlen(user_text)), 0);
	assert_int_equal(ulid_parse(&slot.batch, BATCH, ULID_LEN), 0);
	fflush(stdout);
	assert_true(file && dup2(fileno(file), STDOUT_FILENO) >= 0);
	finding_add(&pass, FINDING_SLOT_LIMIT, &slot, "beyond the limit");
	if (as_json)
		findings_end(&audit.findings, cJSON_Parse("{\"ok\":false}"));
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(file);
	n = fread(printed, 1, sizeof(printed) - 1, file);
	fclose(file);
	printed[n] = '\0';
	return printed;
}

#define U16 "uuuuuuuuuuuuuuuu"

static const char *const users[] = { "42",  "%s%n", "\"",           "\\", "\",1,\"\"],[\"",
				     "a.b", "a,b",  U16 U16 U16 U16 };

static void test_lines(void **state)
{
	char wanted[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		snprintf(wanted, sizeof(wanted),
			 "WRONG P2: coupon 9223372036854775807, user %s, slot 100, "
			 "receive 9223372036854775807.%s." BATCH
			 ".255: beyond the limit (slot_limit)\n",
			 users[i], users[i]);
		assert_string_equal(finding_text(users[i], 0), wanted);
	}
}

static void test_json(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		cJSON *root = cJSON_Parse(finding_text(users[i], 1));
		const cJSON *wrong =
			cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "wrong"), 0);
		char receive[RECEIVE_SIZE];

		if (!root)
			fail_msg("not JSON: %s", printed);
		assert_string_equal(cJSON_GetStringValue(
					    cJSON_GetObjectItemCaseSensitive(wrong, "user")),
				    users[i]);
		snprintf(receive, sizeof(receive), "9223372036854775807.%s." BATCH ".255",
			 users[i]);
		assert_string_equal(cJSON_GetStringValue(
					    cJSON_GetObjectItemCaseSensitive(wrong, "receive")),
				    receive);
		cJSON_Delete(root);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests_name("ctl_finding", tests, NULL, NULL);
}
