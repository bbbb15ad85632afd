"""The documentation site is complete. `.ci/run` builds it, and Zensical checks its links."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .documentation import ROOT

CHROMIUM = "/usr/bin/chromium"


def _command_line() -> ModuleType:
    """The module `docs/command_line.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("command_line", ROOT / "docs/command_line.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation():
    """Zensical 0.0.73 does not report a page that the navigation leaves out."""
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("program", ["alma", "alma-leaderboard"])
def test_the_reference_of_commands_has_every_command_and_option_with_its_help(program):
    command_line = _command_line()
    text = command_line.reference(program)
    listed = list(command_line.commands(command_line.PARSERS[program]()))
    assert len(listed) >= 14
    for command, _ in listed:
        section = text.partition(f"### {command.prog}\n")[2].partition("\n### ")[0]
        assert section.strip(), command.prog
        options = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        options = [action for action in options if action.help != argparse.SUPPRESS]
        assert section.count("\n| `") == len(options), command.prog
        assert all(action.option_strings[-1] in section for action in options if action.option_strings)
        assert "%(" not in section


def test_a_bar_in_the_help_of_an_option_does_not_end_the_cell_of_the_table():
    assert r"`--ray auto\|ADDRESS\|local[:CORES]`" in _command_line().reference("alma")


@pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not installed; Debian: apt-get install chromium"
)
def test_the_search_of_a_page_that_is_opened_from_a_folder_finds_another_page(tmp_path):
    """A browser starts no worker for such a page; `docs/iframe-worker.js` replaces it, and nothing is fetched."""
    pytest.importorskip("zensical", reason="Zensical is not installed: pip install -e '.[docs]'")
    playwright = pytest.importorskip("playwright.sync_api")
    configured = (ROOT / "mkdocs.yml").read_text()
    assert "polyfills: [iframe-worker.js]" in configured
    assert "\n  - offline\n" in configured
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: tried\ntheme: {name: material, font: false}\nplugins: [search, offline]\n"
        "extra: {generator: false, polyfills: [iframe-worker.js]}\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# First\n")
    (tmp_path / "docs/second.md").write_text("# Second\n\nThe word is porcupine.\n")
    shutil.copy(ROOT / "docs/iframe-worker.js", tmp_path / "docs")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=tmp_path, check=True, timeout=300)

    fetched: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: fetched.append(request.url))
        page.goto((tmp_path / "site/index.html").as_uri())
        page.locator(".md-search__button").click()
        page.keyboard.type("porcupine", delay=30)
        page.get_by_text("1 result", exact=True).wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/second.html*")
        browser.close()
    assert all(url.startswith("file:") for url in fetched), fetched
