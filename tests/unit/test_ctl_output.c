/* Rows of a query as couponctl prints them: by a template as text, by columns as JSON. */
#include "ctl/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static PGresult *row;

static int row_make(void **state)
{
	static const struct {
		const char *name, *value;
	} columns[] = { { "id", "7" },          { "name", "Noon [rush] {x}" },
			{ "none", NULL },       { "empty", "" },
			{ "zero", "0" },        { "total", "1234567" },
			{ "is_open", "t" },     { "types", "a,b" },
			{ "raw", "{\"k\":1}" }, { "digits", "12345" } };
	PGresAttDesc attributes[sizeof(columns) / sizeof(columns[0])] = { 0 };
	int n = sizeof(columns) / sizeof(columns[0]);

	(void)state;
	row = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	for (int i = 0; i < n; i++)
		attributes[i].name = (char *)(uintptr_t)columns[i].name;
	assert_true(PQsetResultAttrs(row, n, attributes));
	for (int i = 0; i < n; i++)
		assert_true(PQsetvalue(row, 0, i, (char *)(uintptr_t)columns[i].value,
				       columns[i].value ? (int)strlen(columns[i].value) : -1));
	return 0;
}

static int row_free(void **state)
{
	(void)state;
	PQclear(row);
	return 0;
}

/* What is printed instead of to standard output. */
static void assert_printed(const char *template, const struct column *columns, const char *wanted)
{
	FILE *own = stdout;
	char *text = NULL;
	size_t len;

	stdout = open_memstream(&text, &len);
	assert_non_null(stdout);
	if (columns)
		output_row(row, 0, columns, NULL, 1);
	else
		output_template(template, row, 0);
	fclose(stdout);
	stdout = own;
	assert_string_equal(text, wanted);
	free(text);
}

static void test_fields(void **state)
{
	(void)state;
	assert_printed("coupon {id}\n", NULL, "coupon 7\n");
	assert_printed("{name}", NULL, "Noon [rush] {x}");
	assert_printed("{none}|{empty}|{zero}", NULL, "||0");
	assert_printed("{none|never} {empty|none} {zero|none}", NULL, "never none 0");
	assert_printed("<{id:3}><{id:-3}>", NULL, "<  7><7  >");
	assert_printed("<{none:-6|-}><{none:4|-}>", NULL, "<-     ><   ->");
	assert_printed("{total:,} {id:,} {none:,}", NULL, "1,234,567 7 0");
}

static void test_conditions(void **state)
{
	(void)state;
	assert_printed("a[id  b {id}] c", NULL, "a b 7 c");
	assert_printed("a[none  b {id}] c[empty  d][zero  e]", NULL, "a c");
	assert_printed("[id 1[none 2]3[total 4[zero 5]6]7]8", NULL, "134678");
	assert_printed("[none 1[id 2]3[total 4[zero 5]6]7]8", NULL, "8");
}

static void test_json(void **state)
{
	static const struct column columns[] = {
		{ "id", "id", COLUMN_ID },          { "name", "name", COLUMN_TEXT },
		{ "none", "none", COLUMN_TEXT },    { "nothing", "empty", COLUMN_TEXT },
		{ "zero", "zero", COLUMN_NUMBER },  { "null", "none", COLUMN_NUMBER },
		{ "some", "zero", COLUMN_SOME },    { "total", "total", COLUMN_SOME },
		{ "open", "is_open", COLUMN_BOOL }, { "closed", "none", COLUMN_BOOL },
		{ "types", "types", COLUMN_LIST },  { "raw", "raw", COLUMN_RAW },
		{ "raw_none", "none", COLUMN_RAW }, { .name = NULL },
	};

	(void)state;
	assert_printed(NULL, columns,
		       "{\"id\":\"7\",\"name\":\"Noon [rush] {x}\",\"none\":null,\"nothing\":null,"
		       "\"zero\":0,\"null\":0,\"some\":null,\"total\":1234567,\"open\":true,"
		       "\"closed\":false,\"types\":[\"a\",\"b\"],\"raw\":{\"k\":1},"
		       "\"raw_none\":null}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, row_make, row_free);
}
