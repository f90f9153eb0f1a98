"""How a route is declared and found."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote_to_bytes

import msgspec

from qedtrio.api.codec import decode
from qedtrio.api.messages import Reply, Request
from qedtrio.api.services import Services

__all__ = ["Handler", "Match", "Route", "RouteTable"]

Handler = Callable[[Services, Request], Awaitable[Reply]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One route: what feeds the dispatchers, the description and the tests.

    Attributes:
        path: Template; `{name}` stands for one segment.
        handler: What answers.
        summary: One sentence for the description.
        body: Type of the request's JSON, None when there is none.
        replies: Types that the reply's JSON may have; none when it is no JSON.
        status: Of a success; handlers may answer another one.
        is_hot: Served below Quart's machinery.
        admits: Starts work, so that a draining daemon refuses it.
        streams: Also answers as newline-delimited JSON.
        errors: Codes of the problems it may answer, besides the general ones.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[msgspec.Struct] | None = None
    replies: tuple[object, ...] = ()
    status: int = 200
    is_hot: bool = False
    admits: bool = False
    streams: bool = False
    errors: tuple[str, ...] = ()

    @cached_property
    def decoder(self) -> "msgspec.json.Decoder[msgspec.Struct] | None":
        """Reads the body; made once, when the route enters a table."""
        return None if self.body is None else msgspec.json.Decoder(self.body)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the path parameters."""
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))

    @property
    def segments(self) -> list[str]:
        """The template's parts between slashes."""
        return self.path.removeprefix("/").split("/")

    def read(self, body: bytes) -> object:
        """Decode a request's body; an empty one counts as `{}`.

        Raises:
            RequestError: Naming the offending field.
        """
        return None if self.decoder is None else decode(self.decoder, body or b"{}")


@dataclass(frozen=True, slots=True)
class Match:
    """A route found, and the values of its path parameters."""

    route: Route
    parameters: dict[str, str] = field(default_factory=dict)


class RouteTable:
    """All routes of one listener, found by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[tuple[str, bytes], Match] = {}
        self._shaped: dict[tuple[str, int], list[Route]] = {}
        for route in self.routes:
            _ = route.decoder  # a type that cannot be read fails here, not later
            if route.parameters:
                shape = (route.method, len(route.segments))
                self._shaped.setdefault(shape, []).append(route)
            else:
                self._fixed[route.method, route.path.encode()] = Match(route)

    def __iter__(self) -> Iterator[Route]:
        return iter(self.routes)

    def match(self, method: str, path: bytes) -> Match | None:
        """Find the route for a raw path, still percent-encoded.

        Segments are split before they are decoded, so that an encoded slash
        stays inside its segment.
        """
        found = self._fixed.get((method, path))
        if found is not None:
            return found
        given = path[1:].split(b"/")
        for route in self._shaped.get((method, len(given)), ()):
            parameters = _fit(route.segments, given)
            if parameters is not None:
                return Match(route, parameters)
        return None


def _fit(template: list[str], given: list[bytes]) -> dict[str, str] | None:
    """Values of the template's parameters, None when the path differs."""
    values: dict[str, str] = {}
    for expected, raw in zip(template, given, strict=True):
        text = unquote_to_bytes(raw).decode("utf-8", "replace")
        if expected.startswith("{"):
            values[expected[1:-1]] = text
        elif expected != text:
            return None
    return values
