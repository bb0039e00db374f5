"""docs/start/shop.md, whose blocks are parts of the samples of the clients, and those samples that
the tests of the single clients do not run."""

import re
import subprocess

import pytest

from stack import ROOT

CLIENTS = {"python": "python", "node": "js", "go": "go", "java": "java"}
PAGE = (ROOT / "docs/start/shop.md").read_text("utf-8")


def samples(client):
    page = (ROOT / f"sdk/{client}/README.md").read_text("utf-8")
    return blocks(page, CLIENTS[client])


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_block_of_the_page_is_part_of_a_sample(client):
    sample = re.sub(r"^[ \t]+", "", samples(client)[0], flags=re.MULTILINE)
    found = blocks(PAGE, CLIENTS[client])
    assert len(found) == len(re.findall("^## ", PAGE, re.MULTILINE)) - 1, "one in each section"
    for block in found:
        assert re.sub(r"^[ \t]+", "", block, flags=re.MULTILINE) in sample, block


@pytest.mark.parametrize("client", CLIENTS)
def test_each_line_of_the_readme_is_one_of_a_sample(client):
    (block,) = blocks((ROOT / "README.md").read_text("utf-8"), CLIENTS[client])
    sample = {line.strip() for line in samples(client)[0].splitlines()}
    assert {line.strip() for line in block.splitlines()} <= sample


@pytest.fixture
def bought(stack, pg, plain_url):
    """Runs a program that is such a sample: it has held, used and given back a coupon."""
    coupon = stack.coupon_make(5, 5, amount_off="5.00", currency="EUR")

    def run(text, path, *command):
        text = text.replace("http://127.0.0.1:7480", plain_url)
        path.write_text(text.replace("1001", str(coupon)).replace("order-77", f"order-{coupon}"))
        told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        assert told.stdout == "to pay: 15.00 EUR\n"
        counted = "SELECT count(*) FROM use_operation WHERE coupon_id = %s"
        assert pg.execute(counted, (coupon,)).fetchone() == (3,)

    return run


@pytest.mark.whole
@pytest.mark.plain
def test_the_sample_of_node(bought, tmp_path):
    text = samples("node")[0].replace('"couponmq"', f'"{ROOT}/sdk/node/src/index.js"')
    bought(text, tmp_path / "sample.mjs", "node", tmp_path / "sample.mjs")


@pytest.mark.whole
@pytest.mark.plain
def test_the_sample_of_java(bought, java, tmp_path):
    classes = java[java.index("-cp") + 1]
    text = (ROOT / "sdk/java/Sample.java").read_text("utf-8")
    bought(text, tmp_path / "Sample.java", "java", "-cp", classes, tmp_path / "Sample.java")


@pytest.mark.whole
def test_the_types_of_node_and_its_page_name_what_the_package_exports():
    imported = re.findall(r"import \{([^}]*)\}", "".join(samples("node")))
    names = {name for one in imported for name in re.split(r"[,\s]+", one) if name}
    typed = (ROOT / "sdk/node/index.d.ts").read_text("utf-8")
    declared = set(re.findall(r"^export (?:class|function) (\w+)", typed, re.MULTILINE))
    script = 'import("./sdk/node/src/index.js").then((all) => console.log(...Object.keys(all)))'
    told = subprocess.run(["node", "-e", script], cwd=ROOT, capture_output=True, check=True)
    exported = set(told.stdout.decode().split())
    assert names <= exported and declared == exported
