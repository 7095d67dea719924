"""`stream` of a topic with its output and its checkpoint on another file system of Hadoop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BadInputError, IncompleteError
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.spark.stream.stream import Stream
from pipeline.stream.chunks import PARTS
from pipeline.stream.result import StreamResult
from pipeline.stream.settings import StreamSettings
from pipeline.validation.local import validate
from tests.pipeline.spark.stream.test_stream import landed
from tests.pipeline.support.metering_topic import Message, in_order, publish
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import write_directory

pytestmark = pytest.mark.mock


@pytest.fixture
def streamed(spark: Any, mock_topic: str, lake: str) -> Callable[[], StreamResult]:
    """Return a function that streams the topic."""
    settings = StreamSettings(mock_topic, f"{lake}/checkpoint", f"{lake}/out", once=True)
    return lambda: Stream(spark, settings).run()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three file sets whose files have several parts."""
    monkeypatch.setattr("proxy.metering.topic.PART_BYTES", 5_000)
    return write_directory(tmp_path / "run", batches(), sensors())


def test_a_topic_lands_at_a_url_exactly_once(
    streamed: Callable[[], StreamResult], mock_topic: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a batch wait at the URL for the batch with their manifest, file sets that pass twice are counted once, and a batch that was
    stopped before its marker is repeated.
    """
    messages, out = list(in_order(source)), tmp_path / "out"
    assert any(not part.endswith("/1") for _, part, _ in messages)
    publish(mock_topic, messages[: len(messages) // 2])
    first = streamed()
    waiting = [path for path in (out / "landed" / PARTS).rglob("[0-9]*") if path.is_file()]
    assert (first.file_sets, bool(waiting)) == (1, True)
    publish(mock_topic, messages[len(messages) // 3 :])

    def stopped(*_: object) -> None:
        raise IncompleteError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(FolderOutput, "publish", stopped)
        with pytest.raises(IncompleteError, match="stopped"):
            streamed()
    second = streamed()
    assert (second.file_sets, second.whole) == (2, 3)
    assert sum(landed(out, "decisions_second", "decisions")) == 2_400
    sent = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.*") if path.is_file()}
    assert {name: (out / "landed" / name).read_bytes() for name in sent} == sent
    assert [path for path in (out / "landed" / PARTS).rglob("[0-9]*") if path.is_file()] == []
    assert validate(out / "landed").as_dict(50) == validate(source).as_dict(50)
    assert streamed().file_sets == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda path, part, value: ("other/x", part, value), BadInputError, "which is not a metering file"),
        (lambda path, part, value: (path, part, value[:-1]), IncompleteError, "arrived incomplete from the topic"),
    ],
    ids=["strange", "cut"],
)
def test_what_is_wrong_in_a_topic_is_named(
    streamed: Callable[[], StreamResult],
    mock_topic: str,
    source: Path,
    tmp_path: Path,
    change: Callable[[str, str, bytes], Message],
    error: type[Exception],
    message: str,
) -> None:
    """A strange message, and a file that is not whole, end the stream, and nothing of its batch counts."""
    messages = list(in_order(source))
    publish(mock_topic, [change(*messages[0]), *messages[1:]])
    with pytest.raises(error, match=message):
        streamed()
    assert landed(tmp_path / "out", "verdicts", "decisions") == []
