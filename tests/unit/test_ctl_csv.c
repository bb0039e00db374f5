#include "ctl/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *written(const char *text, size_t len)
{
	char *out = NULL;
	size_t size;
	FILE *stream = open_memstream(&out, &size);

	csv_put(stream, text, len);
	fclose(stream);
	return out;
}

static void test_writes(void **state)
{
	static const char *const fields[][2] = {
		{ "42", "42" },           { "a b", "a b" },       { "a,b", "\"a,b\"" },
		{ "a\"b", "\"a\"\"b\"" }, { "", "\"\"" },         { " a", "\" a\"" },
		{ "a ", "\"a \"" },       { "a\nb", "\"a\nb\"" }, { "a\rb", "\"a\rb\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char *out = written(fields[i][0], strlen(fields[i][0]));

		assert_string_equal(out, fields[i][1]);
		free(out);
	}
}

static void test_reads_the_first_column(void **state)
{
	static const struct {
		const char *record, *first;
		size_t lines;
	} records[] = {
		{ "42\n", "42", 1 },
		{ "42\r\n", "42", 1 },
		{ "42", "42", 1 },
		{ "42\r", "42", 1 },
		{ "42,x,y\r\n", "42", 1 },
		{ ",x\n", "", 1 },
		{ "\n", "", 1 },
		{ "\"a,b\",x\n", "a,b", 1 },
		{ "\"a\"\"b\"\n", "a\"b", 1 },
		{ "\"\"\"\"\"\"\n", "\"\"", 1 },
		{ "42,\"x\ny\r\nz\"\n", "42", 3 },
		{ "\"4\n2\",x\r\n", "4\n2", 2 },
		{ "a\"b,c\n", "a\"b", 1 },
		{ "a\rb,c\n", "a\rb", 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		size_t len = strlen(records[i].record), at = 0;
		/* Of exactly this size, for the address sanitizer. */
		char *text = memcpy(malloc(len), records[i].record, len);
		struct csv_first first;

		assert_null(csv_record(text, len, &at, &first));
		assert_int_equal(at, len);
		assert_int_equal(first.lines, records[i].lines);
		assert_int_equal(first.len, strlen(records[i].first));
		assert_memory_equal(first.text, records[i].first, first.len);
		free(text);
	}
}

static void test_refuses_broken_quotes(void **state)
{
	static const char *const broken[] = { "\"a\n",    "\"",         "x,\"a\n1\n2\n",
					      "\"a\"b\n", "\"a\" ,b\n", "\"a\"\"" };

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		size_t len = strlen(broken[i]), at = 0;
		char *text = memcpy(malloc(len), broken[i], len);
		struct csv_first first;

		assert_non_null(csv_record(text, len, &at, &first));
		free(text);
	}
}

static void test_reads_what_it_writes(void **state)
{
	static const char alphabet[] = "ab\",\r\n ";
	size_t n = sizeof(alphabet) - 1;

	(void)state;
	for (size_t i = 0; i < n * n * n * n; i++) {
		const char field[] = { alphabet[i % n], alphabet[i / n % n],
				       alphabet[i / n / n % n], alphabet[i / n / n / n] };
		char *out = written(field, sizeof(field));
		struct csv_first first;
		size_t at = 0;

		assert_null(csv_record(out, strlen(out), &at, &first));
		assert_int_equal(first.len, sizeof(field));
		assert_memory_equal(first.text, field, sizeof(field));
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes),
		cmocka_unit_test(test_reads_the_first_column),
		cmocka_unit_test(test_refuses_broken_quotes),
		cmocka_unit_test(test_reads_what_it_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
