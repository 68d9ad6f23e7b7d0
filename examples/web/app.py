"""A web backend on a fleet: a page asks, shows the answer as it comes, and goes on with it after a reload or a cut.

    pip install 'tokenfleet[gateway]'
    MODEL=smollm2-135m uvicorn --app-dir examples/web app:app

TOKENFLEET_REDIS_URL says where the fleet is. The app holds nothing: run as many as you like, on any host.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Query
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field

from tokenfleet import (
    End,
    Fleet,
    FleetError,
    InvalidId,
    Restart,
    Settings,
    StoreUnavailable,
    Tokens,
    Truncated,
    UnknownJob,
)

MODEL = os.environ.get("MODEL", "smollm2-135m")
# Other tenants' jobs are unknown to this app. Among its own an id, which nobody can guess, is all that a reader needs.
SETTINGS = Settings.load(tenant="web")
PLACE = "^([0-9]+-[0-9]+)?$"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client of the fleet for all requests."""
    async with Fleet(settings=SETTINGS) as app.state.fleet:
        yield


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    """What the page sends."""

    text: str = Field(min_length=1, max_length=4_000)


@app.get("/")
def page() -> FileResponse:
    """The page."""
    return FileResponse(Path(__file__).with_name("index.html"))


@app.post("/answers")
async def ask(question: Question) -> dict[str, str]:
    """Submit a job; it ends half a minute after the last reader has left."""
    fleet: Fleet = app.state.fleet
    messages = [{"role": "user", "content": question.text}]
    try:
        job = await fleet.submit(model=MODEL, messages=messages, stream=True, max_tokens=400, cancel_unfollowed=30)
    except FleetError as error:
        raise HTTPException(503, error.message) from None
    return {"id": str(job)}


@app.get("/answers/{handle}")
async def answer(
    handle: str,
    after: Annotated[str, Query(pattern=PLACE)] = "",
    last_event_id: Annotated[str, Header(pattern=PLACE)] = "",
) -> StreamingResponse:
    """The answer as server-sent events: from its beginning, or after the one that the page has had last."""
    # A browser that connects again by itself says in the header where it stands by then.
    return StreamingResponse(_events(handle, last_event_id or after), media_type="text/event-stream")


@app.delete("/answers/{handle}")
async def stop(handle: str) -> None:
    """End it."""
    try:
        await app.state.fleet.cancel(handle)
    except FleetError as error:
        raise HTTPException(404, error.message) from None


async def _events(handle: str, after: str) -> AsyncIterator[str]:
    yield "retry: 500\n\n"
    try:
        async for event in _told(handle, after):
            yield event
    except (InvalidId, UnknownJob):
        yield _sent("gone", name="end")
    except StoreUnavailable:
        return  # and the browser comes back


async def _told(handle: str, after: str) -> AsyncIterator[str]:
    truncated = False
    async for event in app.state.fleet.follow(handle, after):
        match event:
            case Tokens() if not truncated:
                yield _sent(event.text, event.id)
            case Restart():
                truncated = False
                yield _sent("", name="restart")
            case Truncated():
                # Tokens are gone. No id is sent from here on, so that who comes back is told so again.
                truncated = True
            case End():
                if truncated:
                    yield _sent("", name="restart")
                    yield _sent(event.outcome.text)
                yield _sent(event.outcome.state, event.id, "end")


def _sent(data: str, place: str = "", name: str = "message") -> str:
    return f"event: {name}\n" + (f"id: {place}\n" if place else "") + f"data: {json.dumps(data)}\n\n"
