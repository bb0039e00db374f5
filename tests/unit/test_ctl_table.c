/* Tables in files: CSV and lines. */
#include "ctl/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BOM "\xef\xbb\xbf"

static char *written(const char *text, size_t len, enum csv_reader reader)
{
	char *out = NULL;
	size_t size;
	FILE *stream = open_memstream(&out, &size);

	csv_put(stream, text, len, reader);
	fclose(stream);
	return out;
}

static void test_writes(void **state)
{
	static const char *const fields[][2] = {
		{ "42", "42" },           { "a b", "a b" },       { "a,b", "\"a,b\"" },
		{ "a\"b", "\"a\"\"b\"" }, { "", "\"\"" },         { " a", "\" a\"" },
		{ "a ", "\"a \"" },       { "a\nb", "\"a\nb\"" }, { BOM, "\"" BOM "\"" },
		{ "a;b", "\"a;b\"" },     { "a\tb", "\"a\tb\"" }, { "Sep=|", "\"Sep=|\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char *out = written(fields[i][0], strlen(fields[i][0]), CSV_READ_EXACTLY);

		assert_string_equal(out, fields[i][1]);
		free(out);
	}
}

static void test_writes_for_spreadsheets(void **state)
{
	static const char *const fields[][2] = {
		{ "=1+1", "'=1+1" },
		{ "+1", "'+1" },
		{ "-1", "'-1" },
		{ "@SUM(1)", "'@SUM(1)" },
		{ "\t=1", "\"'\t=1\"" },
		{ "\r=1", "\"'\r=1\"" },
		{ "=HYPERLINK(\"x\",1)", "\"'=HYPERLINK(\"\"x\"\",1)\"" },
		{ "'=1", "'=1" },
		{ "1=1", "1=1" },
		{ "", "\"\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const char *field = fields[i][0];
		char *out = written(field, strlen(field), CSV_READ_BY_SPREADSHEET);

		assert_string_equal(out, fields[i][1]);
		free(out);
	}
}

static void assert_wrong(const struct csv_row *row, const char *words)
{
	assert_int_equal(row->wrong != NULL, words != NULL);
	if (words)
		assert_non_null(strstr(row->wrong, words));
}

/* The rows of a text, one after the other. */
struct reading {
	struct line_reader *reader;
	struct csv_rows *rows;
	struct csv_row row;
	char *text; /* of exactly its size, for the address sanitizer */
};

static void reading_begin(struct reading *reading, const char *text, size_t len, char delimiter,
			  enum csv_spaces spaces)
{
	reading->text = memcpy(malloc(len + !len), text, len);
	reading->reader = calloc(1, sizeof(*reading->reader));
	reading->reader->file = fmemopen(reading->text, len, "r");
	reading->rows = csv_rows_new(reading->reader, delimiter, spaces);
}

static void reading_end(struct reading *reading)
{
	csv_rows_free(reading->rows);
	fclose(reading->reader->file);
	free(reading->reader);
	free(reading->text);
}

static void test_reads_rows(void **state)
{
	static const struct {
		const char *text, *first;
		size_t cells_n;
	} rows[] = {
		{ "42\n", "42", 1 },
		{ "42\r\n", "42", 1 },
		{ "42", "42", 1 },
		{ "42\r", "42", 1 },
		{ "42,x,y\r\n", "42", 3 },
		{ ",x\n", "", 2 },
		{ "\"\"\n", "", 1 },
		{ "\"a,b\",x\n", "a,b", 2 },
		{ "\"a\"\"b\"\n", "a\"b", 1 },
		{ "\"\"\"\"\"\"\n", "\"\"", 1 },
		{ "42,\"x\ny\r\nz\"\n", "42", 2 },
		{ "\"4\n2\",x\r\n", "4\n2", 2 },
		{ " a b ,c\n", " a b ", 2 },
		{ "\" a\",c\n", " a", 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct reading reading;

		reading_begin(&reading, rows[i].text, strlen(rows[i].text), ',', CSV_SPACES_KEEP);
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_null(reading.row.wrong);
		assert_int_equal(reading.row.cells_n, rows[i].cells_n);
		assert_int_equal(reading.row.cells[0].len, strlen(rows[i].first));
		assert_memory_equal(reading.row.cells[0].text, rows[i].first,
				    strlen(rows[i].first));
		assert_false(csv_rows_next(reading.rows, &reading.row));
		reading_end(&reading);
	}
}

static void test_drops_spaces(void **state)
{
	static const char text[] = " \t\n a b\t,c\n\" a \" ,c\n";
	static const char *const cells[] = { "a b", " a " };
	struct reading reading;

	(void)state;
	reading_begin(&reading, text, strlen(text), ',', CSV_SPACES_DROP);
	for (size_t i = 0; i < 2; i++) {
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_null(reading.row.wrong);
		assert_int_equal(reading.row.cells[0].len, strlen(cells[i]));
		assert_memory_equal(reading.row.cells[0].text, cells[i], strlen(cells[i]));
	}
	assert_false(csv_rows_next(reading.rows, &reading.row));
	reading_end(&reading);
}

static void test_says_where_a_row_begins(void **state)
{
	static const char text[] = "a\n\n\r\n\"b\nb\"\r\n\"c\"d\ne";
	static const struct {
		int64_t line;
		const char *wrong;
	} rows[] = { { 1, NULL }, { 4, NULL }, { 6, "quote is neither" }, { 7, NULL } };
	struct reading reading;

	(void)state;
	reading_begin(&reading, text, strlen(text), ',', CSV_SPACES_KEEP);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_int_equal(reading.row.line, rows[i].line);
		assert_wrong(&reading.row, rows[i].wrong);
	}
	assert_false(csv_rows_next(reading.rows, &reading.row));
	reading_end(&reading);
	reading_begin(&reading, "", 0, ',', CSV_SPACES_KEEP);
	assert_false(csv_rows_next(reading.rows, &reading.row));
	reading_end(&reading);
}

static void test_refuses_what_is_no_row(void **state)
{
	static const struct {
		const char *text;
		const char *wrong;
	} broken[] = {
		{ "\"a\n", "does not end" },           { "\"", "does not end" },
		{ "x,\"a\n1\n2\n", "does not end" },   { "\"a\"b\n", "quote is neither" },
		{ "\"a\" b,c\n", "quote is neither" }, { "a\"b,c\n", "quote is neither" },
		{ "\"a\"\"", "does not end" },         { "a\rb,c\n", "carriage return" },
		{ "a\rb", "carriage return" },         { "a\r\"b\nc\"\n", "carriage return" },
		{ "a\r,", "carriage return" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		struct reading reading;

		reading_begin(&reading, broken[i].text, strlen(broken[i].text), ',',
			      CSV_SPACES_KEEP);
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_wrong(&reading.row, broken[i].wrong);
		reading_end(&reading);
	}
}

static void test_rows_of_any_width_and_a_bounded_length(void **state)
{
	char *text = malloc(LINE_READER_MAX + 2);
	struct reading reading;

	(void)state;
	for (size_t more = 0; more < 2; more++) {
		size_t len = LINE_READER_MAX + more;

		memset(text, ',', len);
		text[0] = 'x'; /* a row of empty cells is none */
		text[len - 1] = '\n';
		reading_begin(&reading, text, len, ',', CSV_SPACES_KEEP);
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_int_equal(reading.row.wrong != NULL, more);
		assert_int_equal(reading.row.cells_n, more ? 0 : len - 1);
		reading_end(&reading);
	}
	free(text);
}

static void test_reads_each_delimiter(void **state)
{
	static const struct {
		const char *text;
		char delimiter;
		size_t rows_n; /* each of two cells, "1,2" and "b" */
		const char *wrong;
	} files[] = {
		{ "\"1,2\",b\n", ',', 1, NULL },
		{ "1,2;b\n1,2;b", ';', 2, NULL },
		{ "1,2\tb\r\n", '\t', 1, NULL },
		{ "sep=;\r\n1,2;b\r\n", ';', 1, NULL },
		{ "\nSEP=\t\n1,2\tb\n\t\n", '\t', 1, NULL },
		{ "1,2;b\n;\n\n ; \n", ';', 1, "" }, /* cells of spaces are not empty */
		{ "sep=;\n", ',', 0, "a semicolon is between columns, and a comma is expected" },
		{ "sep=|\n", ';', 0, "allowed are comma, semicolon and tab" },
		{ "1,2;b\n1\n", ';', 1, "1 columns were read, separated by a semicolon, and 2 in" },
		{ "\n1,2;b\n1;2;3\n", ';', 1, "3 columns were read, separated by a semicolon" },
		{ "\"1,2\",b\n1,2,b\n", ',', 1, "separated by a comma, and 2 in line 1" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct reading reading;

		reading_begin(&reading, files[i].text, strlen(files[i].text), files[i].delimiter,
			      CSV_SPACES_KEEP);
		for (size_t row = 0; row < files[i].rows_n; row++) {
			assert_true(csv_rows_next(reading.rows, &reading.row));
			assert_null(reading.row.wrong);
			assert_int_equal(reading.row.cells_n, 2);
			assert_memory_equal(reading.row.cells[0].text, "1,2", 3);
			assert_memory_equal(reading.row.cells[1].text, "b", 1);
		}
		assert_int_equal(csv_rows_next(reading.rows, &reading.row), files[i].wrong != NULL);
		if (files[i].wrong && *files[i].wrong)
			assert_wrong(&reading.row, files[i].wrong);
		reading_end(&reading);
	}
}

static void test_one_column_with_another_delimiter(void **state)
{
	static const struct {
		const char *text;
		char delimiter;
		const char *wrong;
	} lines[] = {
		{ "user;name\n", ',',
		  "it has a semicolon, and a comma is expected between columns" },
		{ "user\tname\n", ',', "it has a tab" },
		{ "user,name\n", ';', "add --delimiter comma" },
		{ "user,name\n", '\t', "it has a comma, and a tab is expected" },
		{ "\"a;b\";c\n", ',', "it has a semicolon" },
		{ "\"user;name\"\n", ',', NULL },
		{ "\"a\"\",\"\n", ';', NULL },
		{ "\"a;\nb;\"\n", ',', NULL },
		{ "a|b:c\n", ',', NULL },
		{ "a\t \r\n", ',', NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char later[64];
		struct reading reading;

		for (int first = 0; first < 2; first++) {
			snprintf(later, sizeof(later), "%s%s", first ? "" : "x\n", lines[i].text);
			reading_begin(&reading, later, strlen(later), lines[i].delimiter,
				      CSV_SPACES_KEEP);
			if (!first)
				assert_true(csv_rows_next(reading.rows, &reading.row));
			assert_true(csv_rows_next(reading.rows, &reading.row));
			if (!lines[i].wrong)
				assert_null(reading.row.wrong);
			else if (!reading.row.wrong || !strstr(reading.row.wrong, lines[i].wrong))
				/* a quote that the delimiter does not end */
				assert_wrong(&reading.row, "quote is neither");
			reading_end(&reading);
		}
	}
}

static void test_finds_columns(void **state)
{
	static const char text[] = "name, User_ID ,e,E\n";
	struct reading reading;

	(void)state;
	reading_begin(&reading, text, strlen(text), ',', CSV_SPACES_KEEP);
	assert_true(csv_rows_next(reading.rows, &reading.row));
	assert_int_equal(csv_column_find(&reading.row, "user_id"), 1);
	assert_int_equal(csv_column_find(&reading.row, "NAME"), 0);
	assert_int_equal(csv_column_find(&reading.row, "user"), CSV_COLUMN_NONE);
	assert_int_equal(csv_column_find(&reading.row, "e"), CSV_COLUMN_TWICE);
	reading_end(&reading);
}

static void test_reads_what_it_writes(void **state)
{
	static const char alphabet[] = "ab\",;\t\r\n ";
	size_t n = sizeof(alphabet) - 1;

	(void)state;
	for (size_t i = 0; i < n * n * n * n; i++) {
		const char field[] = { alphabet[i % n], alphabet[i / n % n],
				       alphabet[i / n / n % n], alphabet[i / n / n / n] };
		char *out = written(field, sizeof(field), CSV_READ_EXACTLY);
		struct reading reading;

		reading_begin(&reading, out, strlen(out), ',', CSV_SPACES_KEEP);
		assert_true(csv_rows_next(reading.rows, &reading.row));
		assert_int_equal(reading.row.cells[0].len, sizeof(field));
		assert_memory_equal(reading.row.cells[0].text, field, sizeof(field));
		reading_end(&reading);
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes),
		cmocka_unit_test(test_writes_for_spreadsheets),
		cmocka_unit_test(test_reads_rows),
		cmocka_unit_test(test_drops_spaces),
		cmocka_unit_test(test_reads_each_delimiter),
		cmocka_unit_test(test_one_column_with_another_delimiter),
		cmocka_unit_test(test_finds_columns),
		cmocka_unit_test(test_says_where_a_row_begins),
		cmocka_unit_test(test_refuses_what_is_no_row),
		cmocka_unit_test(test_rows_of_any_width_and_a_bounded_length),
		cmocka_unit_test(test_reads_what_it_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
