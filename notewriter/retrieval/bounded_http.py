"""HTTP as uvicorn speaks it, with a bound on how long a request may take to arrive, which uvicorn does not have."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RECEIVE_SECONDS = 30.0
"""From the connection, or the first byte of a further request on it, to the last byte of the request."""


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request is not complete in time, and at once when the server stops."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._expect()

    def on_message_begin(self) -> None:
        """Wait for the rest of a request."""
        self._expect()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """The request has arrived."""
        self._expect(False)
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """No request will come."""
        self._expect(False)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: requests that have arrived are still answered."""
        if self._late:
            self.transport.close()
        super().shutdown()

    def _expect(self, more: bool = True) -> None:
        if self._late:
            self._late.cancel()
        self._late = self.loop.call_later(RECEIVE_SECONDS, self.transport.close) if more else None
