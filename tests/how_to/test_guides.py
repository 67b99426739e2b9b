# SPDX-License-Identifier: Apache-2.0
"""The guides' commands work as printed; what cannot be run here names things that exist."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pilothouse import __version__
from pilothouse.cli import app
from pilothouse.learn.placement.rewards.components import COMPONENTS
from tests.how_to.guide import FOLDER, ROOT, Block, Failed, blocks, commands, pages, play

PROGRAMS = {"docker", "helm", "kind", "kubectl", "make", "openssl", "pilothouse"}
SHELL = {"sed", "grep", "cp", "mkdir", "curl", "kill", "until", "python"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(text_of(page)) if block.language == "sh"]


def accept(words: list[str]) -> None:
    """Parse a command as the command line would; a mistake raises."""
    command: Any = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert not getattr(command, "commands", {}), f"no such command: {words}"
    command.make_context("pilothouse", list(words))


def what_is_not_there(words: list[str]) -> list[str]:
    """Files, targets, chart values and images that a command names and nobody has."""
    missing = [w for w in words if w.startswith(("deploy/", "src/")) and not in_repository(w)]
    values = yaml.safe_load((ROOT / "deploy/charts/pilothouse/values.yaml").read_text())
    for option, value in pairwise(words):
        if option == "--set":
            keys = value.split("=")[0].split(".")
            if keys[0] not in values or keys[1] not in values[keys[0]]:
                missing.append(value)
    missing += [
        w for w in words if w.startswith("pilothouse:") and w != f"pilothouse:{__version__}"
    ]
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        missing += [w for w in words[1:] if w not in targets]
    return missing


def in_repository(word: str) -> bool:
    # deploy/NAME also is how kubectl names a Deployment.
    return (ROOT / word).exists() or word == "deploy/pilothouse-scorer"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_commands_of_a_guide_do_what_it_says(page: Path, tmp_path: Path) -> None:
    assert play(text_of(page), tmp_path) > 0


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_command_is_one_the_programs_know(page: Path) -> None:
    for block in shell_blocks(page):
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
        for words in commands(block):
            words = words[words[0] == "sudo" :]
            assert words[0] in PROGRAMS | SHELL
            assert what_is_not_there(words) == []
            if words[0] == "pilothouse":
                accept([w for w in words[1:] if w != "&"])
            elif "--" in words:  # kubectl exec ... -- pilothouse ...
                accept(words[words.index("--") + 2 :])


def test_there_is_a_guide_for_each_change_and_the_index_has_them_all() -> None:
    index = text_of(FOLDER / "README.md")

    assert {page.stem for page in pages()} == {
        "change-the-network",
        "change-the-policy",
        "register-an-environment",
        "run-on-kind",
        "train-on-a-real-cluster",
        "watch-a-policy",
        "write-a-reward",
    }
    assert [page.name for page in pages() if f"({page.name})" not in index] == []


def test_every_component_of_a_reward_is_in_its_guide() -> None:
    page = text_of(FOLDER / "write-a-reward.md")

    assert [name for name in COMPONENTS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nfalse\n```\n",
        "```sh\nfalse | true\n```\n",
        "```sh fails\ntrue\n```\n```text\n```\n",
        "```sh fails\necho no; false\n```\n```text\nnever\n```\n",
        "```sh\ncat nowhere.yaml\n```\n",
    ],
)
def test_a_guide_that_is_wrong_is_noticed(page: str, tmp_path: Path) -> None:
    with pytest.raises(Failed):
        play(page, tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        "```sh later\ntrue\n```\n",
        "```sh\ntrue\n",
        "```yaml\na: 1\n```\n",
        "```sh fails\nfalse\n```\n```sh\ntrue\n```\n",
    ],
)
def test_a_block_that_nothing_would_test_is_noticed(page: str) -> None:
    with pytest.raises(AssertionError):
        blocks(page)


@pytest.mark.parametrize(
    "line",
    [
        "kubectl apply -f deploy/kind/scorer.yaml",
        "helm install pilothouse deploy/charts/pilothouse --set placement.polizy=ee",
        "kind load docker-image pilothouse:9.9.9",
        "make imagine",
    ],
)
def test_a_name_that_nobody_has_is_noticed(line: str) -> None:
    assert what_is_not_there(line.split()) != []


def test_an_option_that_no_command_has_is_noticed() -> None:
    with pytest.raises(Exception, match="polizy"):
        accept(["train", "placement", "--polizy", "ee"])
