/* Rows of a query as couponctl prints them: by a template as text, and as JSON. */
#include "ctl/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static PGresult *row;
static cJSON *object;

static int row_make(void **state)
{
	static const struct {
		const char *name, *value;
		Oid type; /* by PostgreSQL's pg_type.dat */
	} columns[] = {
		{ "id", "7", 25 },
		{ "name", "Noon [rush] {x}", 25 },
		{ "none", NULL, 25 },
		{ "empty", "", 25 },
		{ "zero", "0", 23 },
		{ "total", "9007199254740993", 20 },
		{ "percent", "12.50", 1700 },
		{ "is_open", "t", 16 },
		{ "is_closed", "f", 16 },
		{ "types", "{a,b}", 1009 },
		{ "no_types", "{}", 1009 },
		{ "raw", "{\"k\":1}", 3802 },
		{ "raw_none", NULL, 3802 },
		{ "part.one", "1", 21 },
		{ "part.two", "b", 25 },
	};
	PGresAttDesc attributes[sizeof(columns) / sizeof(columns[0])] = { 0 };
	int n = sizeof(columns) / sizeof(columns[0]);

	(void)state;
	row = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	for (int i = 0; i < n; i++) {
		attributes[i].name = (char *)(uintptr_t)columns[i].name;
		attributes[i].typid = columns[i].type;
	}
	assert_true(PQsetResultAttrs(row, n, attributes));
	for (int i = 0; i < n; i++)
		assert_true(PQsetvalue(row, 0, i, (char *)(uintptr_t)columns[i].value,
				       columns[i].value ? (int)strlen(columns[i].value) : -1));
	object = output_object();
	output_row(object, row, 0);
	return 0;
}

static int row_free(void **state)
{
	(void)state;
	PQclear(row);
	cJSON_Delete(object);
	return 0;
}

/* What is printed instead of to standard output. */
static void assert_printed(const char *template, const char *wanted)
{
	FILE *own = stdout;
	char *text = NULL;
	size_t len;

	stdout = open_memstream(&text, &len);
	assert_non_null(stdout);
	output_say(cJSON_Duplicate(object, 1), template, !template);
	fclose(stdout);
	stdout = own;
	assert_string_equal(text, wanted);
	free(text);
}

static void test_fields(void **state)
{
	(void)state;
	assert_printed("coupon {id}\n", "coupon 7\n");
	assert_printed("{name}", "Noon [rush] {x}");
	assert_printed("{none}|{empty}|{zero}", "||0");
	assert_printed("{none|never} {empty|none} {zero|none}", "never none 0");
	assert_printed("<{id:3}><{id:-3}>", "<  7><7  >");
	assert_printed("<{none:-6|-}><{none:4|-}>", "<-     ><   ->");
	assert_printed("{total:,} {id:,} {none:,}", "9,007,199,254,740,993 7 0");
	assert_printed("<{total:,24}><{id:,3}>", "<   9,007,199,254,740,993><  7>");
}

static void test_conditions(void **state)
{
	(void)state;
	assert_printed("a[id  b {id}] c", "a b 7 c");
	assert_printed("a[none  b {id}] c[empty  d][zero  e]", "a c");
	assert_printed("[id 1[none 2]3[total 4[zero 5]6]7]8", "134678");
	assert_printed("[none 1[id 2]3[total 4[zero 5]6]7]8", "8");
}

static void test_members(void **state)
{
	(void)state;
	assert_printed("{part.two}{part.three}{part.two.x}", "b");
	assert_printed("{types} {no_types|all} {is_open} {raw} {percent}",
		       "a,b all true {\"k\":1} 12.50");
	assert_printed("[is_open 1][is_closed 2][types 3][no_types 4][raw 5][part 6]", "1356");
	assert_printed("[!id 1][!none 2][!zero 3][!is_closed 4[!empty 5]]", "2345");
}

static void test_json(void **state)
{
	(void)state;
	assert_printed(NULL, "{\"id\":\"7\",\"name\":\"Noon [rush] {x}\",\"none\":null,"
			     "\"empty\":null,\"zero\":0,\"total\":9007199254740993,"
			     "\"percent\":12.50,\"is_open\":true,\"is_closed\":false,"
			     "\"types\":[\"a\",\"b\"],\"no_types\":[],\"raw\":{\"k\":1},"
			     "\"raw_none\":null,\"part\":{\"one\":1,\"two\":\"b\"}}\n");
}

static void test_rows(void **state)
{
	FILE *own = stdout;
	char *text = NULL;
	size_t len;

	(void)state;
	stdout = open_memstream(&text, &len);
	output_rows(PQcopyResult(row, PG_COPYRES_TUPLES), "head\n", "{id}\n", 0);
	output_rows(PQcopyResult(row, PG_COPYRES_ATTRS), "head\n", "{id}\n", 1);
	fclose(stdout);
	stdout = own;
	assert_string_equal(text, "head\n7\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),  cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_members), cmocka_unit_test(test_json),
		cmocka_unit_test(test_rows),
	};

	return cmocka_run_group_tests(tests, row_make, row_free);
}
