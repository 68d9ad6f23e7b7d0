"""What a webhook is told, held against OpenAI's own client."""

import base64
import json

import pytest
from openai import InvalidWebhookSignatureError, OpenAI

from producer.batch.service.hooks import event_of, headers
from protocol.batches import BatchName, BatchRecord, BatchSpec, BatchStatus
from protocol.errors import SetupError

CLIENT = OpenAI(api_key="none")
SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two characters").decode()
ENDS = [status for status in BatchStatus if status.terminal]


def ended(status: BatchStatus) -> BatchRecord:
    spec = BatchSpec(input_file_id="file-1", endpoint="/v1/completions")
    times = {BatchStatus.VALIDATING: 1_000, status: 1_700_000_000_999}
    return BatchRecord(name=BatchName("t", "batch_1"), spec=spec, status=status, times_ms=times)


@pytest.mark.parametrize("secret", [SECRET, "any text"])
@pytest.mark.parametrize("status", ENDS)
def test_openais_client_verifies_and_reads_it(
    status: BatchStatus, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_010.0)
    event = event_of(ended(status))
    told = headers(event, secret, 1_700_000_005)
    read = CLIENT.webhooks.unwrap(event.body.decode(), told, secret=secret)
    assert (read.type, read.id, read.created_at) == (f"batch.{status}", event.id, 1_700_000_000)
    assert json.loads(event.body)["data"] == {"id": "batch_1"}


def test_a_changed_body_or_secret_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_010.0)
    event = event_of(ended(BatchStatus.COMPLETED))
    told = headers(event, SECRET, 1_700_000_005)
    for body, secret in ((event.body + b" ", SECRET), (event.body, "another")):
        with pytest.raises(InvalidWebhookSignatureError):
            CLIENT.webhooks.verify_signature(body.decode(), told, secret=secret)


def test_a_repeat_has_the_same_id_and_body() -> None:
    assert event_of(ended(BatchStatus.FAILED)) == event_of(ended(BatchStatus.FAILED))


def test_without_a_secret_nothing_is_signed_and_a_malformed_one_is_refused() -> None:
    event = event_of(ended(BatchStatus.COMPLETED))
    assert "webhook-signature" not in headers(event, "", 1)
    with pytest.raises(SetupError):
        headers(event, "whsec_!!", 1)
