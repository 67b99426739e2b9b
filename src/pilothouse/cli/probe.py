# SPDX-License-Identifier: Apache-2.0
"""``pilothouse probe``: measure how far this node is from a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import AsJson, print_json

if TYPE_CHECKING:
    from pilothouse.probe import Users

PORT = 10271


def probe(
    users: Annotated[
        list[str] | None, typer.Argument(help="Users as HOST:PORT; the first is the default one.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Network whose addresses may be measured on request.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = PORT,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve measurements of the latency to users, or take one."""
    import asyncio

    found = _users(users or [], allow or [])
    if once:
        asyncio.run(_once(found, as_json))
    else:
        asyncio.run(_serve(found, host, port))


def _users(named: list[str], allow: list[str]) -> Users:
    import ipaddress

    from pilothouse.errors import InvalidSetting
    from pilothouse.probe import Users

    if not named and not allow:
        raise InvalidSetting("There is nobody to measure. Name a user as HOST:PORT, or --allow.")
    try:
        networks = tuple(ipaddress.ip_network(text) for text in allow)
    except ValueError as error:
        raise InvalidSetting(f"--allow: {error}. Give such as 10.0.0.0/8.") from error
    return Users(named=tuple(named), networks=networks)


async def _once(users: Users, as_json: bool) -> None:
    from dataclasses import asdict

    from pilothouse.probe import measure

    for user in users.named:
        found = await measure(user)
        if as_json:
            print_json(asdict(found) | {"latency_ms": found.latency_ms})
        elif found.latency_ms is None:
            typer.echo(f"{user}  {found.problem}")
        else:
            kind = "HTTP" if found.http else "TCP connect"
            typer.echo(f"{user}  {found.latency_ms:.2f} ms ± {found.spread_ms / 2:.2f} ({kind})")


async def _serve(users: Users, host: str, port: int) -> None:
    from pilothouse.errors import PortInUse
    from pilothouse.probe import Probe

    try:
        server = await Probe(users=users).start(host, port)
    except OSError as error:
        raise PortInUse(
            f"Cannot serve on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error
    address, bound = server.sockets[0].getsockname()[:2]
    typer.echo(f"Probe at http://{address}:{bound}/v1/latency", err=True)
    async with server:
        await server.serve_forever()
