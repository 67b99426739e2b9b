# SPDX-License-Identifier: Apache-2.0
"""The command line: thin commands, one file each.

A command's module is imported to show help, so it imports nothing of weight until it runs. Every
error of ours becomes one line on stderr and the error's own exit code; anything else is a bug and
says so. ``PILOTHOUSE_DEBUG=1`` adds the traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pilothouse.cli import (
    artifacts,
    compare,
    config,
    control,
    evaluate,
    explain,
    janitor,
    journal,
    lab,
    nodeagent,
    probe,
    reactions,
    scenarios,
    scorer,
    sim,
    traces,
    train,
    tune,
    up,
)

BUG_EXIT = 70

app = typer.Typer(
    name="pilothouse",
    help="Watch a cluster, forecast trouble, arbitrate between agents, act and explain.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich alone would double the time to the first line
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Every command, in the order of the help; each lives in the module it is named for.
app.command("up")(up.up)
app.command("explain")(explain.explain)
app.command("reactions")(reactions.reactions)
app.command("replay")(journal.replay)
app.command("verify")(journal.verify)
app.command("halt")(control.halt)
app.command("resume")(control.resume)
app.command("mode")(control.mode)
app.command("approve")(control.approve)
app.command("janitor")(janitor.janitor)
app.command("restore")(janitor.restore)
app.command("node-agent")(nodeagent.node_agent)
app.command("scenarios")(scenarios.scenarios)
app.command("scorer")(scorer.scorer)
app.command("probe")(probe.probe)
app.add_typer(config.app, name="config")
app.add_typer(sim.app, name="sim")
app.add_typer(lab.app, name="lab")
app.add_typer(traces.app, name="traces")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(train.app, name="train")
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(compare.app, name="compare")
app.add_typer(tune.app, name="tune")


def _print_version(wanted: bool) -> None:
    if wanted:
        from pilothouse import __version__

        typer.echo(f"pilothouse {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from pilothouse.errors import PilothouseError

    try:
        code = app(arguments, prog_name="pilothouse", standalone_mode=False)
        sys.stdout.flush()
    except PilothouseError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:  # a usage error: unknown option, missing argument
        return _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return _reader_went_away()
    except Exception as error:
        return _fail(_bug(error), BUG_EXIT)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    if os.environ.get("PILOTHOUSE_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    from pilothouse.cli.output import plain

    print(f"pilothouse: {' '.join(plain(message).split())}", file=sys.stderr)
    return code


def _misused(error: typer.TyperException) -> int:
    message = error.format_message()
    if message.startswith("Usage:"):  # a group without a command answers with its help
        print(message)
        return 0
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "pilothouse"
    stop = "" if message.endswith((".", "?")) else "."
    return _fail(f"{message}{_given(error)}{stop} See: {command} --help", error.exit_code)


def _given(error: typer.TyperException) -> str:
    """The value that was refused; only the cause of the error knows it."""
    problems: list[Any] = getattr(error.__cause__, "errors", list)()
    return f", but got {problems[0]['input']}" if problems else ""


def _bug(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {error}. This is a bug in pilothouse; nothing more is done. "
        "Please report it with the output of PILOTHOUSE_DEBUG=1."
    )


def _reader_went_away() -> int:
    """``pilothouse scenarios | head -1`` is no error; keep Python from flushing into the void."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
