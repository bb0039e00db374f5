"""The tables of docs/about/capacity.md follow from the figures that `make bench` has written."""

import sys

from stack import ROOT

sys.path.append(str(ROOT / "bench"))
import capacity_model  # noqa: E402


def test_the_tables_follow_from_the_figures():
    page = capacity_model.PAGE.read_text(encoding="utf-8")
    assert capacity_model.page_with_tables(page, capacity_model.found_read()) == page


def test_each_table_is_there():
    page = capacity_model.PAGE.read_text(encoding="utf-8")
    assert sorted(capacity_model.TABLE.findall(page)) == sorted(capacity_model.TABLES)
