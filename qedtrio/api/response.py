"""The way back of a request: stamped, counted, streamed."""

from typing import TYPE_CHECKING

import trio

from qedtrio.api.messages import Reply
from qedtrio.api.problem import problem_reply

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveEvent, ASGISendCallable, ASGISendEvent

__all__ = ["Replay", "Response"]


class Response:
    """The way back of one request: stamps the id and notes the status.

    Attributes:
        status: Of the response, once it was begun; 0 before.
    """

    def __init__(self, send: "ASGISendCallable", request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0

    async def send(self, message: "ASGISendEvent") -> None:
        """Forward a message of the application, stamping its first."""
        stamp = (b"x-request-id", self.request_id.encode())
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], stamp]
        elif message["type"] == "websocket.http.response.start":
            message["headers"] = [*message["headers"], stamp]
        await self._send(message)

    async def send_reply(self, reply: Reply) -> None:
        """Send what a handler answered."""
        if reply.lines is None:
            length = (b"content-length", b"%d" % len(reply.body))
            await self._start(reply, length)
            await self._body(reply.body, more=False)
            return
        try:
            await self._send_lines(reply)
        except Exception as error:
            if self.status:
                raise  # too late for a status: the connection is cut instead
            await self.send_reply(problem_reply(error, self.request_id))

    async def _send_lines(self, reply: Reply) -> None:
        """Send a stream; nothing goes out before its first line is there."""
        assert reply.lines is not None, "a reply without lines has a body"
        async with reply.lines() as lines:
            async for line in lines:
                if not self.status:
                    await self._start(reply)
                await self._body(line, more=True)
        if not self.status:
            await self._start(reply)
        await self._body(b"", more=False)

    async def _start(self, reply: Reply, *extra: tuple[bytes, bytes]) -> None:
        """Send the head."""
        self.status = reply.status
        headers = [
            (b"content-type", reply.content_type.encode()),
            (b"x-request-id", self.request_id.encode()),
            *((key.lower().encode(), value.encode()) for key, value in reply.headers),
            *extra,
        ]
        await self._send(
            {"type": "http.response.start", "status": self.status, "headers": headers}
        )

    async def _body(self, body: bytes, *, more: bool) -> None:
        """Send a part of the body."""
        await self._send(
            {"type": "http.response.body", "body": body, "more_body": more}
        )


class Replay:
    """A `receive` that gives a body once and then waits for ever.

    Disconnection is not reported: it cancels the task instead.
    """

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> "ASGIReceiveEvent":
        """The body, or nothing more, ever."""
        if self._body is None:
            await trio.sleep_forever()
        body, self._body = self._body or b"", None
        return {"type": "http.request", "body": body, "more_body": False}
