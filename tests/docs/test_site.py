"""The documents as a site: `make site` has installed what makes it."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from skips import NO_BROWSER, NO_SITE
from stack import ROOT, wait_until

pytestmark = pytest.mark.skipif(NO_SITE, reason="make site")
SOURCE = "https://source.example/blob/main/"
SCHEMES = ("default", "slate")
# A page with all that a site may not have, the words that tell it, and what Markdown differs in.
WRONG = """# Wrong

[an anchor](start/install.md#nowhere), [a page](start/nowhere.md), ![a picture](nowhere.png)

<script src="//script.example/x.js"></script>
<script>fetch("https://inline.example/x")</script>
<div style="background: url(https://style.example/x.png)"></div>
<img srcset="https://picture.example/x.png 2x">

```mermaid
stateDiagram-v2
    one --> two: a transition
    note right of one: unheard
```

```mermaid
flowchart LR
    a["one"] -- "a label, of more words than fit on a line" --> b[("two, three")]
```

[a file](../LICENSE), [an outside page](../sdk/python/README.md)

- outer:
  - inner

| code |
| --- |
| `left\\|right` |
"""
TOLD = (
    *("install.html#nowhere", "start/nowhere.md", "nowhere.png", "script.example"),
    *("inline.example", "style.example", "picture.example", "import.example", "fetch.example"),
    "unheard",
)


def copy_make(folder):
    """The tree, in which the documents and what makes the site of them may be changed."""
    for path in ROOT.iterdir():
        if path.name in ("docs", "scripts"):
            shutil.copytree(path, folder / path.name)
        elif not re.match(r"\.|build", path.name):
            (folder / path.name).symlink_to(path)
    (folder / "build").mkdir()
    (folder / "build/diagrams").symlink_to(ROOT / "build/diagrams")


def build(folder, **env):
    command = ["mkdocs", "build", "--strict", "-f", folder / "scripts/site/mkdocs.yml"]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | env
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    copy_make(folder)
    assert build(folder) == (0, "")
    return folder / "build/site"


def texts(site, *suffixes):
    return {path: path.read_text("utf-8") for path in site.rglob("*") if path.suffix in suffixes}


def test_each_document_is_a_page_to_which_the_others_lead(site):
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    outside = [path.relative_to(ROOT) for path in ROOT.glob("*/*/README.md")]
    pages = [*documents, *(path for path in outside if path.parts[0] in ("sdk", "examples"))]
    assert len(pages) > 30
    start = (site / "index.html").read_text("utf-8")
    for page in pages:
        address = re.sub(r"(README)?\.md$", "", str(page)) + ("index" * page.match("README.md"))
        assert (site / f"{address}.html").is_file() and f'href="{address}.html"' in start, page


def test_nothing_comes_from_another_host(site):
    """Its address is in links, which somebody follows, in comments, in sentences, and as a name of
    XML."""
    xml = re.compile(r"http://www\.w3\.org/[\w/]+")
    link = re.compile(r"<a\s[^>]*>")
    code = re.compile(r"<script[^>]*>.*?</script>|<style[^>]*>.*?</style>", re.DOTALL)
    for path, text in texts(site, ".html", ".svg").items():
        text = link.sub("", xml.sub("", text))
        parts = [*re.findall(r"<[^>]*>", text), *code.findall(text)]
        assert [part for part in parts if re.search(r"https?:|[\"'(=]//\w", part)] == [], path
    comment = re.compile(r"/\*.*?\*/|<!--.*?-->|^\s*//.*?$", re.DOTALL | re.MULTILINE)
    for path, text in texts(site, ".css", ".js").items():
        if "assets/javascripts/lunr/" not in str(path):  # languages, which no page loads
            text = comment.sub("", xml.sub("", text))
            assert re.findall(r"""["'`(]https?://\w[\w-]*\.\w[^"'`)]*""", text) == [], path


def test_each_link_leads_to_a_file(site):
    for path, text in texts(site, ".html").items():
        for address in re.findall(r'<a href="([^"#:]+)["#]', text):
            folder = site if address.startswith("/") else path.parent
            assert (folder / address.lstrip("/")).is_file(), f"{path}: {address}"


def test_the_search_knows_each_section(site):
    found = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    places = {one["location"]: one for one in found}
    assert "keeper" in places["about/lifecycle.html#a-keeper"]["text"]
    for place in places:
        page, _, anchor = place.partition("#")
        assert not anchor or f'id="{anchor}"' in (site / page).read_text("utf-8"), place


def test_both_schemes(site):
    """With a switch; the pictures that are there twice, and the diagrams, follow it."""
    start = (site / "index.html").read_text("utf-8")
    assert re.findall(r'<input [^>]*data-md-color-scheme="(\w+)"', start) == list(SCHEMES)
    for dark in (ROOT / "docs").rglob("*-dark.png"):
        light = dark.name.replace("-dark", "")
        page = (site / "guides/console.html").read_text("utf-8")
        assert f'{light}#only-light"' in page and f'{dark.name}#only-dark"' in page
    diagrams = re.findall(
        r'<div class="diagram">(.*?)</svg>', "".join(texts(site, ".html").values()), re.DOTALL
    )
    assert len(diagrams) > 10
    colours = {one for svg in diagrams for one in re.findall(r'(?:fill|stroke)="([^"]*)"', svg)}
    style = (ROOT / "scripts/site/theme/site.css").read_text("utf-8")
    assert colours <= {
        "none",
        *(f"var({one})" for one in re.findall(r"^\t(--[\w-]+):", style, re.M)),
    }


def test_what_is_wrong_is_told(tmp_path):
    copy_make(tmp_path)
    (tmp_path / "docs/wrong.md").write_text(WRONG, "utf-8")
    with (tmp_path / "scripts/site/theme/site.css").open("a") as file:
        file.write('@import "https://import.example/x.css";\n')
    script = tmp_path / "scripts/site/theme/x.js"
    script.write_text("fetch('https://fetch.example/x')\n", "utf-8")
    status, printed = build(tmp_path, SITE_SOURCE=SOURCE)
    assert status == 1
    assert [word for word in TOLD if word not in printed] == [], printed
    assert printed.count("a diagram lacks") == 1
    page = (tmp_path / "build/site/wrong.html").read_text("utf-8")
    assert re.search(r"<li>outer:\s*<ul>\s*<li>inner", page) and "<code>left|right</code>" in page
    assert f'href="{SOURCE}LICENSE"' in page and 'href="sdk/python/index.html"' in page


def test_pictures_are_small():
    """Those of the console together, and the terminal that `make record` draws: lines of text."""
    assert sum(one.stat().st_size for one in ROOT.glob("docs/guides/console/*.png")) < 1_000_000
    path = ROOT / "docs/start/run.svg"
    text = path.read_text("utf-8")
    assert path.stat().st_size < 60_000
    assert ">$ make run<" in text and re.search(r">PASS: 10,000 accepted, 10,000 rows, 0 ", text)


@pytest.fixture
def served(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(NO_BROWSER, reason="make test-console")
@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_in_a_browser(served, tmp_path, scheme):
    """It is found by its words, in the scheme of the system, and nothing else is loaded."""
    sys.path.append(str(Path(ROOT / "tests/console")))
    from browser import browser_open

    with browser_open(served, tmp_path / "profile") as browser:
        browser.scheme(scheme)
        browser.driver.get(f"{served}/about/lifecycle.html")
        shown = "return document.body.getAttribute('data-md-color-scheme')"
        wait_until(lambda: browser.run(shown) == SCHEMES[scheme == "dark"])
        browser.driver.get(f"{served}/index.html?q=fence")
        browser.sees("A keeper")
        names = browser.run(
            "return performance.getEntriesByType('resource').map((one) => one.name)"
        )
        assert len(names) > 4 and [name for name in names if not name.startswith(served)] == []
        assert browser.complaints() == []
