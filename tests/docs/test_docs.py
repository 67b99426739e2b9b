# SPDX-License-Identifier: Apache-2.0
"""The documents say what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import DERIVED, stale
from pilothouse.settings.file import sections

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(#[^)]*)?\)")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in LINK.finditer(page.read_text(encoding="utf-8"))]

    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_commands_named_in_the_docs_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:^    |`)make ([a-z][a-z-]*)", text, flags=re.MULTILINE)

    assert set(named) - make_targets() == set()


def test_readme_leads_with_the_two_commands() -> None:
    readme = text_of("README.md")

    assert readme.index("make up") < readme.index("make test") < readme.index("make help")


def test_every_make_target_for_people_is_in_its_help() -> None:
    helped = set(re.findall(r"^([a-z-]+):.*## ", text_of("Makefile"), flags=re.MULTILINE))

    assert {"up", "test", "install", "web", "lint", "fmt", "bench", "lock", "verify"} <= helped
    assert {"help", "presubmit", "clean"} <= helped


def test_derived_files_are_fresh() -> None:
    assert stale() == []


def test_every_setting_is_documented() -> None:
    page = text_of("docs/settings.md")
    fields = [field for section in sections() for field in section.fields]

    assert [f.path for f in fields if f"| `{f.path.split('.', 1)[1]}` |" not in page] == []
    assert [f.path for f in fields if not f.doc] == []


def test_derived_files_say_that_nobody_edits_them() -> None:
    markdown = [name for name in DERIVED if name.endswith(".md")]

    assert [name for name in markdown if "make generate" not in text_of(name)] == []


def test_every_package_has_its_paragraph_in_the_architecture() -> None:
    page = text_of("docs/architecture.md")
    package = ROOT / "src" / "pilothouse"
    folders = {p.parent.name for p in package.glob("*/__init__.py")}

    assert [name for name in sorted(folders) if f"**{name}/**" not in page] == []


def test_locks_hold_hashes_and_no_addresses() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert re.search(r"https?://|--index|--find-links|file:|@ /", text) is None


def test_commands_named_in_the_docs_exist() -> None:
    from typer.main import get_command

    from pilothouse.cli import app

    known = set(getattr(get_command(app), "commands", {}))
    named = {
        match
        for page in PAGES
        for match in re.findall(r"[`/]pilothouse ([a-z][a-z-]+)", page.read_text(encoding="utf-8"))
    }

    assert named - known == set()


def test_scenarios_named_in_the_docs_exist() -> None:
    from pilothouse.scenarios import names

    named = {
        match
        for page in PAGES
        for match in re.findall(r"--scenario ([a-z][a-z-]+)", page.read_text(encoding="utf-8"))
    }

    assert named - set(names()) == set()
