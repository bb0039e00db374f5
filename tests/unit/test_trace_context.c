/*
 * What callers' tracing says: each text is at the end of memory of its own, so that a sanitizer
 * finds a byte that is read behind it.
 */
#include "common/message/trace_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define PARENT "00-" TRACE "-" SPAN "-01"

static char *copy_make(const char *text, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);

	memcpy(copy, text, len);
	return copy;
}

static void test_request_ids(void **state)
{
	char longest[REQUEST_NAME_MAX + 1];

	(void)state;
	memset(longest, '~', sizeof(longest));
	assert_true(request_name_valid("a", 1));
	assert_true(request_name_valid("!\"\\~", 4));
	assert_true(request_name_valid(longest, REQUEST_NAME_MAX));
	assert_false(request_name_valid(longest, REQUEST_NAME_MAX + 1));
	assert_false(request_name_valid("", 0));
	assert_false(request_name_valid("a b", 3));
	assert_false(request_name_valid("a\tb", 3));
	assert_false(request_name_valid("a\0b", 3));
	assert_false(request_name_valid("\xc3\xbc", 2));
	assert_false(request_name_valid("\x7f", 1));
}

static int trace_parse(const char *text, struct trace_context *trace)
{
	char *copy = copy_make(text, strlen(text));
	int rc = trace_context_parse(copy, strlen(text), trace);

	free(copy);
	return rc;
}

static void test_traces(void **state)
{
	static const char *const wrong[] = {
		"",
		"00",
		"00-" TRACE "-" SPAN,
		"00-" TRACE "-" SPAN "-",
		"00-" TRACE "-" SPAN "-0",
		"00-" TRACE "-" SPAN "-0x",
		"00-" TRACE "-" SPAN "-01-",
		"00-" TRACE "-" SPAN "-01-x",
		"00-" TRACE "-" SPAN "-01 ",
		"cc-" TRACE "-" SPAN "-01x",
		"ff-" TRACE "-" SPAN "-01",
		"0-" TRACE "-" SPAN "-01",
		"0x-" TRACE "-" SPAN "-01",
		"00_" TRACE "-" SPAN "-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-" TRACE "0-" SPAN "-01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
		"00-" TRACE "-00f067aa0ba902bg-01",
	};
	struct trace_context trace;

	(void)state;
	assert_int_equal(trace_parse("00-" TRACE "-" SPAN "-01", &trace), 0);
	assert_string_equal(trace.trace_id, TRACE);
	assert_string_equal(trace.span_id, SPAN);
	assert_int_equal(trace_parse("00-" TRACE "-" SPAN "-ff", &trace), 0);
	assert_int_equal(trace_parse("cc-" TRACE "-" SPAN "-01", &trace), 0);
	assert_int_equal(trace_parse("cc-" TRACE "-" SPAN "-01-what is new", &trace), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(trace_parse(wrong[i], &trace), -1);
}

static void test_sampled(void **state)
{
	static const struct {
		const char *flags;
		int is_sampled;
	} cases[] = {
		{ "00", 0 }, { "01", 1 }, { "02", 0 }, { "03", 1 }, { "0f", 1 }, { "fe", 0 }
	};
	struct trace_context trace;
	char text[] = PARENT;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(text + TRACE_PARENT_LEN - 2, cases[i].flags, 2);
		assert_int_equal(trace_parse(text, &trace), 0);
		assert_int_equal(trace.is_sampled, cases[i].is_sampled);
	}
}

static int valid(const char *text)
{
	char *copy = copy_make(text, strlen(text));
	int is = trace_context_valid(copy, strlen(text));

	free(copy);
	return is;
}

static void test_what_is_handed_on(void **state)
{
	char longest[REQUEST_NAME_MAX + 1], out[TRACE_SIZE], more[TRACE_SIZE + 1];
	struct trace_context trace;

	(void)state;
	assert_int_equal(trace_parse("cc-" TRACE "-" SPAN "-03-what is new", &trace), 0);
	trace_context_format(&trace, NULL, out);
	assert_string_equal(out, PARENT);
	assert_true(valid(out));
	assert_string_equal(trace_context_name(out), "");
	memset(longest, '"', REQUEST_NAME_MAX);
	longest[REQUEST_NAME_MAX] = '\0';
	trace_context_format(&trace, longest, out);
	assert_int_equal(strlen(out), TRACE_MAX);
	assert_true(valid(out));
	assert_string_equal(trace_context_name(out), longest);

	strcpy(more, out);
	strcat(more, "x");
	assert_false(valid(more));
	assert_false(valid(""));
	assert_false(valid(PARENT " "));
	assert_false(valid(PARENT "x"));
	assert_false(valid(PARENT " a b"));
	assert_false(valid(PARENT " \x7f"));
	assert_false(valid("01-" TRACE "-" SPAN "-01"));
	assert_false(valid("00-" TRACE "-" SPAN "-0"));
	assert_false(valid("00-" TRACE "-" SPAN "-00"));
	assert_false(valid("00-" TRACE "-" SPAN "-03"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_ids),
		cmocka_unit_test(test_traces),
		cmocka_unit_test(test_sampled),
		cmocka_unit_test(test_what_is_handed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
