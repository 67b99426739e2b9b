# SPDX-License-Identifier: Apache-2.0
"""What every command shares: help, version, errors in one line, exit codes."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import pytest
import typer

import pilothouse
from pilothouse import cli
from pilothouse.errors import JournalUnwritable, PilothouseError, PortInUse


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """An app in the place of ours whose only command raises what a test tells it to."""
    app = typer.Typer()
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.delenv("PILOTHOUSE_DEBUG", raising=False)
    return app


def raise_from(app: typer.Typer, error: BaseException) -> int:
    @app.command()
    def fail() -> None:
        raise error

    return cli.main([])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pilothouse.cli", *arguments], capture_output=True, text=True
    )


def test_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"pilothouse {pilothouse.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["config"], ["--help"], ["-h"]])
def test_help_is_shown_on_stdout(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0

    captured = capsys.readouterr()
    assert captured.out.lstrip().startswith("Usage: pilothouse")
    assert captured.err == ""


def test_help_costs_less_than_half_a_second_of_processor_time() -> None:
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def timed() -> tuple[float, float]:
        start, before = time.perf_counter(), spent()
        assert run("--help").returncode == 0
        return spent() - before, time.perf_counter() - start

    # Of processor time, which a quiet machine's clock hardly exceeds: others' work is not its
    # cost. The clock is held to more, so that a wait is seen too. The least of a few counts.
    tries = [timed()]
    while (min(cpu for cpu, _ in tries) >= 0.5 or min(w for _, w in tries) >= 5) and len(tries) < 6:
        tries.append(timed())
    assert min(cpu for cpu, _ in tries) < 0.5, tries
    assert min(wall for _, wall in tries) < 5, tries


@pytest.mark.parametrize(
    "error", [PortInUse("8088 is taken.\nUse --port 0."), JournalUnwritable("The disk is full.")]
)
def test_an_error_of_ours_is_one_line_with_its_exit_code(
    failing: typer.Typer, error: PilothouseError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raise_from(failing, error) == error.exit_code
    assert capsys.readouterr().err == f"pilothouse: {' '.join(str(error).split())}\n"


def test_an_unexpected_error_says_that_it_is_a_bug(
    failing: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raise_from(failing, ZeroDivisionError("division by zero")) == cli.BUG_EXIT

    message = capsys.readouterr().err
    assert message.startswith("pilothouse: ZeroDivisionError: division by zero. This is a bug")
    assert message.count("\n") == 1


def test_debug_adds_the_traceback(
    failing: typer.Typer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PILOTHOUSE_DEBUG", "1")

    raise_from(failing, ZeroDivisionError("division by zero"))

    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_quietly(
    failing: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raise_from(failing, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_went_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pilothouse.cli", "config", "init", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["confg"], "No such command 'confg'. Did you mean 'config'? See: pilothouse --help"),
        (["--nope"], "No such option: --nope. See: pilothouse --help"),
        (["config", "check"], "Missing argument 'path'. See: pilothouse config check --help"),
    ],
)
def test_misuse_is_one_line_that_names_the_help(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == f"pilothouse: {message}\n"


def test_the_module_runs_like_the_command() -> None:
    done = run("--version")

    assert (done.returncode, done.stdout) == (0, f"pilothouse {pilothouse.__version__}\n")
