"""An engine's load as its own client sees it: counted, not asked for."""

from dataclasses import dataclass

from worker.engine.base import EngineLoad


@dataclass(slots=True)
class Flight:
    """One request that the engine has."""

    prompt_tokens: int
    """Estimated."""
    generated_tokens: int = 0
    """Chunks seen; nearly all servers send one for each token."""


class Tally:
    """Counts the requests that one client has on an engine."""

    def __init__(self) -> None:
        """Begin with none."""
        self._flights: dict[int, Flight] = {}
        self._generated_before = 0

    def open(self, prompt_tokens: int) -> Flight:
        """A request goes out; count its tokens on what this returns, and close that."""
        flight = Flight(prompt_tokens)
        self._flights[id(flight)] = flight
        return flight

    def close(self, flight: Flight) -> None:
        """A request is over."""
        if self._flights.pop(id(flight), None):
            self._generated_before += flight.generated_tokens

    def load(self, slots: int, resident_bytes: int = 0) -> EngineLoad:
        """The figures; what exceeds the engine's slots waits, and a request without a token holds no KV yet."""
        flights = self._flights.values()
        running = min(len(flights), slots)
        return EngineLoad(
            running=running,
            waiting=len(flights) - running,
            kv_used_tokens=sum(f.prompt_tokens + f.generated_tokens for f in flights if f.generated_tokens),
            generated_tokens=self._generated_before + sum(flight.generated_tokens for flight in flights),
            resident_bytes=resident_bytes,
        )
