"""Hooks of mkdocs for `make site`: pages from outside docs/, links to what is no page, lists and
anchors as in the repository, diagrams as SVG. At the end each link, and that nothing is loaded from
another host, is checked: what is wrong is a warning, at which `mkdocs build --strict` fails."""

import html
import json
import logging
import os
import re
import subprocess
import textwrap
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

from markdown.blockprocessors import ListIndentProcessor, OListProcessor
from markdown.extensions import Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODULES = ROOT / "build/diagrams/node_modules"
LABEL_WIDTH = 24  # of a label of a diagram, which is broken there
FENCE = re.compile(r"(^ *```.*?^ *```\s*?$)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\|.*$", re.MULTILINE)
DIAGRAM = re.compile(r"^ *```mermaid\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^)\s]+)\)")
log = logging.getLogger("mkdocs.site")
logging.getLogger("mkdocs").setLevel(logging.WARNING)
diagrams = {}  # {text: SVG}


def is_elsewhere(address):
    return re.match(r"(https?:)?//", address.strip())


# ---- the Markdown of the repository


class Lists(Extension):
    """Lists are indented by two columns, where Python's Markdown wants four."""

    def extendMarkdown(self, md):
        md.tab_length, before = 2, md.tab_length
        for processor in md.parser.blockprocessors:
            if isinstance(processor, (ListIndentProcessor, OListProcessor)):
                processor.__init__(processor.parser)
        md.tab_length = before


def slug(heading, _separator):
    """The anchor of a heading, as repositories make it."""
    return re.sub(r"[^\w\- ]", "", html.unescape(heading).lower()).strip().replace(" ", "-")


def strokes_bare(text):
    """In code, in a row of a table, Python's Markdown shows the backslash before a stroke."""
    code = re.compile(r"`[^`]*`")
    return ROW.sub(lambda row: code.sub(lambda one: one[0].replace(r"\|", "|"), row[0]), text)


def on_config(config):
    config["markdown_extensions"].append(Lists())
    config["mdx_configs"]["toc"] = {"slugify": slug, "permalink": True, "toc_depth": 3}
    fence = {"name": "mermaid", "class": "diagram", "format": diagram_of}
    config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [fence]}
    nav_complete(config["nav"])
    return config


def nav_complete(nav):
    """Adds the pages of docs/ that are not listed to the section of their folder; a folder in it is
    a section of its own."""
    listed = set(re.findall(r"[\w/-]+\.md", json.dumps(nav)))
    for section in nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            inner = {}
            for path in sorted((DOCS / title.lower()).rglob("*.md")):
                name, folder = str(path.relative_to(DOCS)), path.parent.name
                if name not in listed and folder == title.lower():
                    pages.append(name)
                elif name not in listed:
                    inner.setdefault(folder, []).append(name)
            pages += [{folder: names} for folder, names in inner.items()]


def pages_outside():
    found = [path for path in ROOT.glob("*.md") if path.name != "README.md"]
    return [*found, *ROOT.glob("sdk/*/README.md"), *ROOT.glob("examples/*/README.md")]


def on_files(files, config):
    for path in pages_outside():
        name = str(path.relative_to(ROOT))
        files.append(File(name, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    texts = [Path(page.abs_src_path).read_text("utf-8") for page in files.documentation_pages()]
    diagrams_make([textwrap.dedent(one) for text in texts for one in DIAGRAM.findall(text)])
    return files


# ---- diagrams


def words(text):
    return set(re.findall(r"\w+", text))


def labels(text):
    """The words of a diagram: after a colon, in quotes, and between strokes."""
    text = re.sub(r"<br ?/?>|^ *%%.*$", " ", text, flags=re.MULTILINE)
    found = re.findall(r'"([^"]*)"|\|([^|]*)\||: (.*)$', text, re.MULTILINE)
    return {word for one in found for label in one for word in words(label)}


def wrapped(text):
    """With breaks in long labels, where they make a diagram wide."""
    if not re.match(r"\s*(stateDiagram|flowchart|graph)", text) or "<br" in text:
        return text
    label = re.compile(r'"[^"\n]*"|(?<=: )[^"\n]*$', re.MULTILINE)
    return label.sub(lambda one: "<br>".join(textwrap.wrap(one[0], LABEL_WIDTH)), text)


def diagrams_make(texts):
    """All at once. What the renderer does not know, it leaves out: then a word is missing."""
    if not texts:
        return
    command = ["node", Path(__file__).with_name("diagrams.mjs"), MODULES]
    given = json.dumps([wrapped(text) for text in texts])
    printed = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    for number, (text, svg) in enumerate(zip(texts, json.loads(printed.stdout))):
        svg = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)  # theme/site.css
        svg = re.sub(r'^(<svg [^>]*?) style="[^"]*"', r"\1", svg)
        svg = re.sub(r'(?<= id=")|(?<=url\(#)', f"diagram-{number}-", svg)
        shown = words(html.unescape(re.sub(r"<[^>]*>", " ", svg)))
        if labels(text) - shown:
            log.warning(f"a diagram lacks {sorted(labels(text) - shown)}: {text}")
        diagrams[text.strip()] = svg


def diagram_of(source, _language, css_class, _options, _md, **_others):
    return f'<div class="{css_class}">{diagrams[source.strip()]}</div>'


# ---- links


def on_page_markdown(markdown, page, config, files):
    """Addresses pages by their places in the site. A picture with a dark one beside it (NAME-dark)
    is shown in the light scheme, and the other in the dark."""
    here = Path(page.file.abs_src_path).relative_to(ROOT)
    source = config["extra"]["source"]

    def place(target):
        """The address in the site; None: it is a file that is not in it."""
        path, hash_, anchor = target.partition("#")
        there = os.path.normpath(here.parent / path)
        if re.match(r"[a-z]+:", target) or not path or not (ROOT / there).exists():
            return target
        in_site = re.sub("^docs/", "", there)
        for name in (in_site, f"{in_site}/README.md"):
            if name in files.src_uris:
                return os.path.relpath(name, os.path.dirname(page.file.src_uri)) + hash_ + anchor
        return None

    def image(found):
        name, ending = os.path.splitext(found[2])
        dark = f"{name}-dark{ending}"
        if not (ROOT / here.parent / dark).is_file():
            return f"![{found[1]}]({place(found[2]) or found[2]})"
        both = ((place(found[2]), "light"), (place(dark), "dark"))
        return "".join(f"![{found[1]}]({address}#only-{scheme})" for address, scheme in both)

    def link(found):
        address = place(found[2])
        if address is None and source:
            path, hash_, anchor = found[2].partition("#")
            address = source + os.path.normpath(here.parent / path) + hash_ + anchor
        return found[1] if address is None else f"[{found[1]}]({address})"

    parts = FENCE.split(markdown)
    parts[::2] = [strokes_bare(LINK.sub(link, IMAGE.sub(image, part))) for part in parts[::2]]
    return "".join(parts)


# ---- checks


class Reader(HTMLParser):
    """What a page, or a picture, has: anchors, links, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads, self.tag = {""}, [], [], None
        self.styles = self.scripts = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tag = tag
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif name in ("href", "xlink:href", "src", "poster", "data", "action"):
                self.loads.append(value)
            elif name == "srcset":
                self.loads += [one.split()[0] for one in value.split(",")]
            elif name == "style":
                self.styles += value

    def handle_data(self, data):
        if self.tag == "style":
            self.styles += data
        elif self.tag == "script":
            self.scripts += data


def loaded_by_css(text):
    return re.findall(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""", text)


def loaded_by_script(text):
    """Every address of another host, but the names of XML."""
    found = re.findall(r"""["'`]((?:https?:)?//[\w.-]+\.[a-z]{2,}[^"'`]*)["'`]""", text)
    return [address for address in found if not address.startswith("http://www.w3.org/")]


def scripts_cut(site):
    """Removes the addresses from which the theme's script would load a renderer of diagrams, and
    figures of a repository."""
    for path in site.glob("assets/javascripts/*.js"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"""(["'`])https://[^"'`\s]*\1""", r"\1\1", text), "utf-8")


def place_in(site, path, target):
    """The file to which an address leads in that of a page."""
    folder = site if target.startswith("/") else path.parent
    there = Path(os.path.normpath(folder / target.lstrip("/"))) if target else path
    return there / "index.html" if there.is_dir() else there


def check(site):
    """What is wrong with the site, one line each."""
    loads = {}
    pages = {path: Reader(path) for path in site.rglob("*") if path.suffix in (".html", ".svg")}
    for path, page in pages.items():
        loads[path] = page.loads + loaded_by_css(page.styles) + loaded_by_script(page.scripts)
        for address in page.links + page.loads:
            target, _, anchor = urllib.parse.unquote(address).partition("#")
            if not re.match(r"[a-z]+:|//", target):
                there = place_in(site, path, target)
                is_page = there in pages and there.suffix == ".html"
                if not there.is_file() or (is_page and anchor not in pages[there].anchors):
                    yield f"{path}: {address} leads nowhere"
    for suffix, loaded in (("css", loaded_by_css), ("js", loaded_by_script)):
        for path in site.rglob(f"*.{suffix}"):
            loads[path] = loaded(path.read_text("utf-8"))
    for path, addresses in loads.items():
        yield from (f"{path}: loads {address}" for address in addresses if is_elsewhere(address))


def on_post_build(config):
    site = Path(config["site_dir"])
    scripts_cut(site)
    for wrong in check(site):
        log.warning(wrong)
