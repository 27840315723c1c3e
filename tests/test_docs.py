"""Documentation under test: every target, option, metric, dependency and link is there and right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# From help texts.
GENERATED = {"options.md"}
# Pages that the site of the repository has, and no checkout.
OF_THE_SITE = "../../actions/"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("lenet5/*/README.md")])


def targets() -> list[str]:
    return re.findall(r"^([\w-]+):[^#\n]*##", (ROOT / "Makefile").read_text(), flags=re.M)


def everything() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def test_every_target_is_documented() -> None:
    text = everything()
    assert [name for name in targets() if not re.search(rf"make {re.escape(name)}\b", text)] == []


def test_every_target_named_in_the_docs_exists(root: Path) -> None:
    known = {*targets(), *(f"defconfig-{path.name}" for path in root.glob("**/defconfigs/*"))}
    named = set(re.findall(r"(?:^(?:\$ )?|`)make ([a-z][\w-]*)", everything(), flags=re.M))
    assert named - known - {"defconfig-"} == set()


def test_every_option_is_documented(root: Path) -> None:
    """But for a bool without a prompt, which only others select."""
    symbols = {
        name
        for path in [root / "Kconfig", *root.glob("*/Kconfig"), *root.glob("lib/**/Kconfig")]
        for name in re.findall(r"^config (\w+)\n(?!\tbool\n)", path.read_text(), flags=re.M)
    }
    text = (root / "docs/options.md").read_text()
    assert [name for name in sorted(symbols) if name not in text] == []


def test_every_requirement_is_justified(root: Path) -> None:
    names = [
        re.split(r"[=<>;]", line)[0]
        for file in ("run.in", "test.in")
        for line in (root / "requirements" / file).read_text().splitlines()
        if line and not line.startswith(("#", "-"))
    ]
    text = (root / "docs/dependencies.md").read_text()
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith(OF_THE_SITE)]
    assert [link for link in local if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """Names that a link to a part of the page may have: GitHub's of its headings, and its own."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(
        re.findall(r'id="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_part_that_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", page.read_text())
    assert [
        f"{to}#{part}" for to, part in links if part not in anchors(page.parent / to if to else page)
    ] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        local = (link for link in links if "://" not in link and not link.startswith(OF_THE_SITE))
        queue += [(page.parent / link).resolve() for link in local]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in seen] == []


def test_the_index_has_every_page(root: Path) -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (root / "docs/index.md").read_text()))
    assert listed == {path.name for path in root.glob("docs/*.md")} - {"index.md"}


def test_the_glossary_is_in_order(root: Path) -> None:
    words = re.findall(r"^\| ([a-z, -]+) \|", (root / "docs/glossary.md").read_text(), flags=re.M)[2:]
    assert words == sorted(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_wrapped(page: Path) -> None:
    """Tables, code and pictures aside."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!", "    "))]
    assert [line for line in prose if len(line) > 120 and page.name not in GENERATED] == []
