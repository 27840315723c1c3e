"""TensorBoard's event files, of torch, Lightning, Hugging Face, tensorboardX and TensorFlow."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import MetricSource, Reported, Watched, files_below, half_record

# Folders that programs write to by default, in theirs; and the variable that Hugging Face's callback takes.
FOLDERS = ("runs", "lightning_logs", "logs", "outputs")
HF_FOLDER = "TENSORBOARD_LOGGING_DIR"
EVENT_FILE = "tfevents"
# Folders in which a writer keeps the curves of one split.
CURVES = ("train", "val", "valid", "validation", "eval", "test")
# The end of its name: process and a count, as torch and TensorFlow 2 have it; tensorboardX has neither.
WRITER = re.compile(r"\.(\d+)\.\d+(?:\.v2)?$")

# Fields of event.proto and summary.proto: Event.wall_time, .step, .summary; Summary.value;
# Summary.Value.tag, .simple_value, .tensor, .metadata; TensorProto.dtype, .tensor_content, .float_val,
# .double_val, .string_val.
WALL_TIME, STEP, SUMMARY, VALUE, TAG, SIMPLE_VALUE, TENSOR, METADATA = 1, 2, 5, 1, 1, 2, 8, 9
DTYPE, CONTENT, FLOAT_VAL, DOUBLE_VAL, STRING_VAL = 1, 4, 5, 6, 8
FLOAT, DOUBLE = 1, 2

# Tags of what says options: of the hparams plugin, and the texts of Hugging Face's callback, in JSON.
HPARAMS = b"_hparams_/session_start_info"
ARGUMENTS = b"args/text_summary"
TEXTS = (ARGUMENTS, b"model_config/text_summary")
# Fields of it: SummaryMetadata.plugin_data; PluginData.content; HParamsPluginData.session_start_info;
# SessionStartInfo.hparams; of its entries the key and the value, a google.protobuf.Value: .number_value,
# .string_value, .bool_value.
PLUGIN_DATA, PLUGIN_CONTENT, SESSION_START, HPARAM, HPARAM_KEY, HPARAM_VALUE = 1, 2, 3, 1, 1, 2
NUMBER, STRING, BOOL = 2, 3, 4

RICHNESS = 70


def variables(watched: Watched) -> Mapping[str, str]:
    """Have Hugging Face's callback write below the run directory."""
    return {HF_FOLDER: str(watched.own("tensorboard"))}


def find(watched: Watched) -> Iterator[TensorboardSource]:
    """Yield the files that are new in the usual folders, those that the user named, and the run directory."""
    folders = [*(f"{watched.cwd}/{name}" for name in FOLDERS), *map(str, watched.follow)]
    if own := watched.environment.get(HF_FOLDER):
        folders.append(own)
    found = [path for folder in folders for path in files_below(folder, part=EVENT_FILE)]
    found += [path for path in watched.follow if EVENT_FILE in path.name and os.path.isfile(path)]
    for path in dict.fromkeys([*found, *watched.in_directory(EVENT_FILE)]):
        if watched.is_new(path) and not _is_of_another(path, watched):
            yield TensorboardSource(path)


def _is_of_another(path: Path, watched: Watched) -> bool:
    """Whether another program writes the file, such as another run of a matrix."""
    writer = WRITER.search(path.name)
    return watched.is_of_another(path, int(writer[1]) if writer else None)


class TensorboardSource(MetricSource):
    """An event file; the place is a byte offset."""

    kind = "tensorboard"
    note = "single precision, as event files have it"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._arguments: dict[str, object] = {}
        """Those of Hugging Face's Trainer."""

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the numbers of each event after a byte offset."""
        from monitoring.trackers._event_file import events_after  # no program waits for it
        from monitoring.trackers._protobuf import fields_in, message_at

        for event, end in events_after(self.path, place):
            head = dict(fields_in(event))
            summary = message_at(event, SUMMARY)
            values = dict(_numbers(summary)) if summary is not None else {}
            if values:
                time = head.get(WALL_TIME)
                at = struct.unpack("<d", time)[0] if isinstance(time, bytes) else None
                step = head.get(STEP, 0)
                named = {named_by_folder(tag, self.path.parent.name): values[tag] for tag in values}
                yield Reported(named, end, step if isinstance(step, int) else 0, at)
            if summary is not None and (config := self._config(summary)):
                yield Reported(config, end, event="config")

    def _config(self, summary: bytes) -> dict[str, object]:
        """Return what an event tells of the configuration, by `add_hparams` or by Hugging Face's callback."""
        from monitoring.trackers._protobuf import fields_in  # as above

        found: dict[str, object] = {}
        for value in (value for _, value in fields_in(summary) if isinstance(value, bytes)):
            if HPARAMS in value:
                found |= hparams(value)
            elif any(tag in value for tag in TEXTS):
                texts = _texts(value)
                # the arguments go before the model's configuration, as in its callbacks of other trackers
                found |= {name: texts[name] for name in texts if name not in self._arguments}
                self._arguments |= texts if ARGUMENTS in value else {}
        return found

    def cut_off(self, place: int) -> str:
        """Say that the file ends in the middle of an event."""
        from monitoring.trackers._event_file import events_after  # as above

        return half_record(self.path, max((end for _, end in events_after(self.path, place)), default=place))


def named_by_folder(tag: str, folder: str) -> str:
    """Return the name of a metric: writers that tell curves apart by folders give them one tag.

    `add_scalars("acc", {"a": …})` of torch and tensorboardX writes `acc` into the folder `acc_a`, Keras
    `epoch_loss` into `train` and `validation`.
    """
    beginning = f"{tag.replace('/', '_')}_"
    if folder.startswith(beginning):
        return f"{tag}/{folder.removeprefix(beginning)}"
    return f"{folder}/{tag}" if folder in CURVES and not tag.startswith(folder) else tag


def _numbers(summary: bytes) -> Iterator[tuple[str, float]]:
    from monitoring.trackers._protobuf import fields_in  # as above

    for number, value in fields_in(summary):
        if number != VALUE or not isinstance(value, bytes):
            continue
        found = dict(fields_in(value))
        tag, simple, tensor = found.get(TAG, b""), found.get(SIMPLE_VALUE), found.get(TENSOR)
        name = tag.decode("utf-8", "replace") if isinstance(tag, bytes) else ""
        if isinstance(simple, bytes) and len(simple) == 4:
            yield name, struct.unpack("<f", simple)[0]
        elif isinstance(tensor, bytes) and (of_tensor := _scalar(tensor)) is not None:
            yield name, of_tensor


def _scalar(tensor: bytes) -> float | None:
    """Return the number of a tensor that has one, as TensorFlow 2 writes scalars."""
    from monitoring.trackers._protobuf import fields_in  # as above

    found = dict(fields_in(tensor))
    form, size = ("<f", 4) if found.get(DTYPE) == FLOAT else ("<d", 8)
    if found.get(DTYPE) not in (FLOAT, DOUBLE):
        return None
    content = found.get(CONTENT) or found.get(FLOAT_VAL if size == 4 else DOUBLE_VAL)
    return struct.unpack(form, content)[0] if isinstance(content, bytes) and len(content) == size else None


def hparams(value: bytes) -> dict[str, object]:
    """Return the options in a value of the hparams plugin; integers are numbers like others there."""
    from monitoring.trackers._protobuf import fields_in, message_at  # as above

    message: bytes | None = value
    for number in (METADATA, PLUGIN_DATA, PLUGIN_CONTENT, SESSION_START):
        message = message_at(message or b"", number)
    found: dict[str, object] = {}
    for _, entry in (field for field in fields_in(message or b"") if field[0] == HPARAM):
        assert isinstance(entry, bytes)
        name = (message_at(entry, HPARAM_KEY) or b"").decode("utf-8", "replace")
        for kind, content in fields_in(message_at(entry, HPARAM_VALUE) or b""):
            if kind == NUMBER and isinstance(content, bytes):
                (number,) = struct.unpack("<d", content)
                found[name] = int(number) if number.is_integer() else number
            elif kind == STRING and isinstance(content, bytes):
                found[name] = content.decode("utf-8", "replace")
            elif kind == BOOL:
                found[name] = bool(content)
    return found


def _texts(value: bytes) -> dict[str, object]:
    """Return the object in the JSON of a text; nothing of another text."""
    import orjson  # as above

    from monitoring.trackers._protobuf import message_at

    text = message_at(message_at(value, TENSOR) or b"", STRING_VAL) or b""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
