"""The kinds of episodes: what one client does from a beginning to an end."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import trio

from qedtrio.cli.bench.scenarios import fresh_item
from qedtrio.cli.bench.soak.acts import ACTS, COUNT, LOOP, NUMPY, Act
from qedtrio.cli.bench.soak.player import FaultMetError, Player, UnexpectedAnswerError
from qedtrio.cli.http import TransportError

__all__ = ["Kind", "Repertoire", "play_until_done"]

MOST_ATTEMPTS = 25
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
"""Between attempts; a pool that lost its server takes seconds to preload again."""

IDLE_SECONDS = 2.0
"""Enough for a run on a busy machine to follow the opening in time."""
BATCH_ITEMS = 6
MOST_INTERRUPTS = 5
"""A worker that gets no processor for a second does not react in time."""

ENDLESS = replace(
    LOOP,
    name="interrupted",
    status="interrupted",
    raised="KeyboardInterrupt",
    deadline_seconds=60.0,
)
"""Ends when somebody interrupts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of episode.

    Attributes:
        weight: How often it is drawn, compared with the others.
    """

    name: str
    weight: int
    play: Callable[[Player], Awaitable[None]]


@dataclass(slots=True)
class Repertoire:
    """All kinds, and the draw.

    Args:
        has_numpy: Whether the default pool preloads it.
        chance: Draws kinds and acts.
    """

    has_numpy: bool
    chance: random.Random = field(default_factory=random.Random)

    @property
    def acts(self) -> Sequence[Act]:
        """What may be run here."""
        return (*ACTS, NUMPY) if self.has_numpy else ACTS

    @property
    def kinds(self) -> Sequence[Kind]:
        """What may be played."""
        return (
            Kind(name="session", weight=48, play=self.play_session),
            Kind(name="stateless", weight=20, play=self.play_stateless),
            Kind(name="verify", weight=16, play=play_verify),
            Kind(name="verify_batch", weight=6, play=play_verify_batch),
            Kind(name="interrupt", weight=3, play=play_interrupt),
            Kind(name="vanish", weight=3, play=play_vanish),
            Kind(name="close_busy", weight=2, play=play_close_busy),
            Kind(name="idle", weight=1, play=play_idle),
        )

    def draw(self) -> Kind:
        """Choose a kind."""
        kinds = self.kinds
        return self.chance.choices(kinds, [kind.weight for kind in kinds])[0]

    def draw_acts(self, number: int) -> list[Act]:
        """Choose what is run."""
        acts = self.acts
        return self.chance.choices(acts, [act.weight for act in acts], k=number)

    def everything(self) -> list[Kind]:
        """One episode of each kind, and of each act, for warming up."""

        def stateless(act: Act) -> Kind:
            return Kind(name="stateless", weight=0, play=lambda p: p.run(act))

        rest = [kind for kind in self.kinds if kind.name != "stateless"]
        return [*rest, *(stateless(act) for act in self.acts)]

    async def play_session(self, player: Player) -> None:
        """Open a session, run one to four things in it, close it."""
        async with player.open_session() as session:
            for act in self.draw_acts(self.chance.randint(1, 4)):
                await player.run(act, session)

    async def play_stateless(self, player: Player) -> None:
        """Run something without a session."""
        (act,) = self.draw_acts(1)
        await player.run(act)


async def play_until_done(kind: Kind, player: Player) -> None:
    """Play an episode; play it again while a fault explains how it ended."""
    tally = player.tally
    pause = FIRST_PAUSE_SECONDS
    for attempt in range(MOST_ATTEMPTS):
        tally.attempts += 1
        try:
            await kind.play(player)
        except FaultMetError as fault:
            tally.faults[str(fault)] += 1
        except (UnexpectedAnswerError, TransportError) as error:
            tally.fail(f"{kind.name}: {error}")
            return
        else:
            tally.episodes[kind.name] += 1
            tally.recovered += attempt > 0
            return
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    tally.fail(f"{kind.name}: still met by faults after {MOST_ATTEMPTS} attempts")


# Verification ---------------------------------------------------------------


def items() -> list[tuple[dict[str, str], str]]:
    """Make fresh items, each with its only right verdict."""
    right = [(fresh_item(), "correct") for _ in range(BATCH_ITEMS - 2)]
    wrong = fresh_item() | {"prediction": r"So it is \(\boxed{-17}\)."}
    silent = fresh_item() | {"prediction": "I do not know."}
    return [*right, (wrong, "wrong"), (silent, "no_answer")]


@dataclass(frozen=True, slots=True)
class Judged:
    """What is checked of a Verdict."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JudgedMany:
    """What is checked of a batch's reply."""

    verdicts: list[Judged]


def check_verdict(player: Player, wanted: str, found: Judged) -> None:
    """Count a verdict that is right."""
    if found.status == "worker_died":
        raise FaultMetError("worker_died")  # twice in a row, but that may happen
    if found.status != wanted:
        raise UnexpectedAnswerError(
            f"{found.status} ({found.reason}) instead of {wanted}"
        )
    player.tally.verdicts[wanted] += 1


async def play_verify(player: Player) -> None:
    """Verify one answer."""
    item, wanted = random.choice(items())  # noqa: S311  # no secret
    reply = await player.ask("POST", "/v1/verify", item)
    check_verdict(player, wanted, reply.json(Judged))


async def play_verify_batch(player: Player) -> None:
    """Verify some answers in one request; the order is kept."""
    batch = items()
    random.shuffle(batch)
    body = {"items": [item for item, _ in batch]}
    verdicts = (await player.ask("POST", "/v1/verify", body)).json(JudgedMany).verdicts
    if len(verdicts) != len(batch):
        raise UnexpectedAnswerError(f"{len(verdicts)} verdicts for {len(batch)} items")
    for (_, wanted), found in zip(batch, verdicts, strict=True):
        check_verdict(player, wanted, found)


# Two things at once ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What is checked of the reply to an interrupt."""

    interrupted: bool


async def play_interrupt(player: Player) -> None:
    """Interrupt a run; the state before it is kept."""
    replies = [Interrupted(False)]
    async with player.open_session() as session:
        await player.run(COUNT, session)

        async def interrupt() -> None:
            path = f"{session.path}/interrupt"
            while not replies[-1].interrupted and len(replies) <= MOST_INTERRUPTS:
                reply = await player.ask("POST", path, {}, aside=True)
                replies.append(reply.json(Interrupted))

        await player.watch(ENDLESS, session, interrupt)
        if not replies[-1].interrupted:
            raise UnexpectedAnswerError(f"interrupt answered {replies}")
        await player.run(COUNT, session)


class _LeftError(Exception):
    """The client leaves."""


async def play_vanish(player: Player) -> None:
    """Leave in the middle of a run; the next one finds the state kept."""
    async with player.open_session() as session:
        await player.run(COUNT, session)

        async def leave() -> None:
            await trio.lowlevel.checkpoint()
            raise _LeftError

        try:
            await player.watch(ENDLESS, session, leave)
        except _LeftError:
            player.tally.faults["client_left"] += 1
            session.has_unseen_run = True
        await player.run(COUNT, session)


async def play_close_busy(player: Player) -> None:
    """Close a session in the middle of a run, which is told so."""
    closed = False
    async with player.open_session() as session:

        async def close() -> None:
            nonlocal closed
            await player.ask("DELETE", session.path, aside=True)
            closed = True

        try:
            await player.watch(ENDLESS, session, close)
        except UnexpectedAnswerError as answer:
            if not (closed and "session_closed" in str(answer)):
                raise
        else:
            raise UnexpectedAnswerError("a run went on in a closed session")


async def play_idle(player: Player) -> None:
    """Leave a session alone until it is closed for that."""
    async with player.open_session(idle_seconds=IDLE_SECONDS) as session:
        await player.run(COUNT, session)
        await trio.sleep(1.5 * IDLE_SECONDS)
        path = f"{session.path}/run"
        await player.ask_refused("POST", path, COUNT.body(), "session_closed")
