"""Without a safeguard of couponctl."""

from mutant import mutant

DISTRIBUTE = "tests/e2e/test_e2e_distribute.py::"
IMPORT = "tests/e2e/test_e2e_codes_import.py::"

MUTANTS = [
    mutant(
        "P5",
        "the number of columns of each row",
        "ctl/table.c",
        "\tif (row->cells_n != rows->columns_n) {\n",
        "\tif (0 * row->cells_n) {\n",
        "unit_test_ctl_table::test_reads_each_delimiter",
    ),
    mutant(
        "P5",
        "the delimiter that a row of one column has",
        "ctl/table.c",
        "\tif (!other)\n\t\treturn NULL;\n",
        "\tif (other || !other)\n\t\treturn NULL;\n",
        "unit_test_ctl_table::test_one_column_with_another_delimiter",
    ),
    mutant(
        "P5",
        "the delimiter in a list of lines",
        "ctl/distribute/list.c",
        "\t\tif (delimiter && list->format == LIST_LINES_GUESSED)\n",
        "\t\tif (delimiter && list->format != list->format)\n",
        DISTRIBUTE + "test_a_list_that_is_not_what_it_is_taken_for",
    ),
    mutant(
        "P5",
        "the heading that gets no coupon",
        "ctl/distribute/list.c",
        "\tif (list->n > 1 && (all_digits || all_at))\n",
        "\tif (list->n > 1 && 0 * (all_digits || all_at))\n",
        DISTRIBUTE + "test_a_list_that_is_not_what_it_is_taken_for",
    ),
    mutant(
        "P5",
        "the column of codes that is not known",
        "ctl/codes/code_file.c",
        "\tif (kind == KIND_UNKNOWN && file->form.is_import)\n",
        "\tif (kind == KIND_UNKNOWN && 0 * file->form.is_import)\n",
        IMPORT + "test_what_is_not_known_is_refused_by_name",
    ),
    mutant(
        "P5",
        "the code that was used before it was imported",
        "gateway/redeem/redeem.c",
        '\tif (strcmp(state, "used") == 0) {\n',
        '\tif (0 * strcmp(state, "used")) {\n',
        "tests/e2e/test_e2e_redeem.py::test_codes_that_were_used_or_revoked_elsewhere",
    ),
    mutant(
        "codes",
        "the dashes and spaces of pasted codes",
        "codes/form.c",
        "\t\tif (point >= ranges[i].first && point <= ranges[i].last)\n",
        "\t\tif (point >= ranges[i].first && point < ranges[i].last)\n",
        "unit_test_codes_form::test_pasted",
    ),
    mutant(
        "codes",
        "the first warning as a whole line",
        "admin/child.c",
        "\t\tlines_drop(child, channel->bytes, bytes_max);\n",
        "\t\tevbuffer_drain(channel->bytes, len - bytes_max);\n",
        "tests/e2e/test_e2e_admin.py::test_many_warnings",
    ),
    mutant(
        "operators",
        "the question before what cannot be undone",
        "ctl/args.c",
        '\tif (args_text(args, "yes") || ',
        '\tif (!args_text(args, "yes") || ',
        "tests/e2e/test_e2e_couponctl.py::test_what_cannot_be_undone_is_asked_on_a_terminal",
    ),
    mutant(
        "P5",
        "the look at all columns before the first code is stored",
        "ctl/codes/code_file.c",
        "\t\twhile (csv_rows_next(file->csv, &row))\n\t\t\tif (row.wrong)\n",
        "\t\twhile (csv_rows_next(file->csv, &row))\n\t\t\tif (0 * row.line)\n",
        IMPORT + "test_of_csv_with_other_columns_nothing_is_stored",
    ),
    mutant(
        "rush",
        "the rush that nobody has answered",
        "rush/main.c",
        "requests.strange == 0 && rush_requests_answered(&requests) > 0 &&",
        "requests.strange == 0 &&",
        "tests/e2e/test_e2e_rush.py::test_a_rush_that_nobody_answers",
    ),
]
