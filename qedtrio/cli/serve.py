"""`qedtrio serve`: the daemon in the foreground."""

import os
from functools import partial
from pathlib import Path

import click

from qedtrio.cli.entry import run_async
from qedtrio.cli.logs import configure_logging
from qedtrio.cli.options import config_option, listen_option, read_config
from qedtrio.daemon import Urls, serve_forever
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.faults import Fault, Faults

__all__ = ["command"]


@click.command()
@config_option
@listen_option
@click.option(
    "--bench-echo",
    is_flag=True,
    hidden=True,
    help="Also answer POST /bench/echo, the floor that `qedtrio bench` needs.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="KIND=RATE",
    hidden=True,
    help="Let this share of the workers' starts fail this way, for tests.",
)
@click.option(
    "--inject-seed",
    type=int,
    default=0,
    hidden=True,
    help="Seed of the draws, the pools taking turns.",
)
@click.option(
    "--strongest-tier",
    type=click.Choice(list(Tier)),
    default=Tier.A,
    hidden=True,
    help="Isolate no stronger than this, to test the weaker tiers.",
)
@click.option(
    "--until-eof",
    is_flag=True,
    help="Also stop when standard input ends, as it does when a parent dies.",
)
def command(
    config_path: Path | None,
    listen: tuple[str, ...],
    bench_echo: bool,
    inject: tuple[str, ...],
    inject_seed: int,
    strongest_tier: str,
    until_eof: bool,
) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Prints one line per listener on stdout when it is ready, and nothing else
    there; logs go to stderr.
    """
    config, _ = read_config(config_path, listen)
    configure_logging(config.log)
    owner = os.dup(0) if until_eof else None
    run = partial(
        serve_forever,
        bench_echo=bench_echo,
        faults=read_faults(inject, inject_seed),
        strongest_tier=Tier(strongest_tier),
        owner=owner,
    )
    run_async(run, config, announce)


def read_faults(options: tuple[str, ...], seed: int) -> Faults | None:
    """Make faults of `KIND=RATE` options; None without any.

    Raises:
        click.BadParameter: A kind is unknown, or a rate is out of range.
    """
    if not options:
        return None
    try:
        pairs = (option.partition("=") for option in options)
        return Faults({Fault(kind): float(rate) for kind, _, rate in pairs}, seed)
    except ValueError as error:
        kinds = ", ".join(Fault)
        raise click.BadParameter(
            f"{error}; KIND is one of {kinds}", param_hint="--inject"
        ) from error


def announce(urls: Urls) -> None:
    """Print the ready lines, each as soon as it is complete."""
    for api, url in urls:
        print(f"ready {api} {url}", flush=True)
