"""W&B's transaction log, offline or online: each row of a run's history to the last digit, its config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import MetricSource, Reported, Watched, files_below, half_record

# Fields of wandb_internal.proto: Record.history, .config, .run; RunRecord.config; HistoryRecord.item, .step;
# ConfigRecord.update; those of both kinds of items, .key, .nested_key, .value_json; HistoryStep.num.
HISTORY, CONFIG, RUN, CONFIG_OF_RUN = 2, 5, 17, 4
ITEM, STEP, UPDATE, KEY, NESTED_KEY, VALUE_JSON, NUM = 1, 2, 1, 1, 2, 16, 1

# How often, in seconds, wandb-core writes its buffer out, from 0.31 on.
FLUSH = "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL"

RICHNESS = 90


def variables(watched: Watched) -> Mapping[str, str]:
    """Put the log into the run directory and have it written once a second; the mode stays the user's."""
    return {"WANDB_DIR": str(watched.own("")), FLUSH: "1"}


def find(watched: Watched) -> Iterator[WandbSource]:
    """Yield the logs of the program's runs; `latest-run` is a link to one of them."""
    for path in files_below(Path(watched.environment.get("WANDB_DIR", watched.cwd)) / "wandb", ".wandb"):
        if watched.is_new(path) and not watched.is_of_another(path):
            yield WandbSource(path)


def upload_command(path: Path) -> str | None:
    """Return the command that uploads a log which W&B keeps offline; None for another."""
    from monitoring.trackers._wandb_upload import typed_wandb  # no program waits for it

    return typed_wandb("sync", path.parent) if path.parent.name.startswith("offline-run-") else None


class WandbSource(MetricSource):
    """The log of one run."""

    kind = "wandb"

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the rows after a byte offset, and what is told of the configuration."""
        from monitoring.bridge.flat import reported  # no program waits for it
        from monitoring.trackers._protobuf import message_at
        from monitoring.trackers._wandb_log import read_log

        for record in read_log(self.path, place):
            if (history := message_at(record.data, HISTORY)) is not None:
                yield reported(_row(history), record.end)
            elif config := _config(record.data):
                yield Reported(config, record.end, event="config")

    def cut_off(self, place: int) -> str:
        """Say that the log ends in the middle of a record."""
        from monitoring.trackers._wandb_log import HEADER, read_log  # as above

        ends = (record.end for record in read_log(self.path, place))
        return half_record(self.path, max(ends, default=max(place, len(HEADER))))


def _config(record: bytes) -> dict[str, object]:
    """Return what a record tells of the configuration: that of a run which begins, or a change of it."""
    from monitoring.trackers._protobuf import fields_in, message_at  # as above

    run = message_at(record, RUN)
    config = message_at(record, CONFIG) if run is None else message_at(run, CONFIG_OF_RUN)
    items = [item for number, item in fields_in(config or b"") if number == UPDATE]
    named = (_item(item, ".") for item in items if isinstance(item, bytes))
    return {name: value for name, value in named if not name.startswith("_")}


def _item(item: bytes, between: str) -> tuple[str, object]:
    from monitoring.trackers._protobuf import fields_in  # as above

    names, value = [], b"null"
    for part, content in fields_in(item):
        if part in (KEY, NESTED_KEY) and isinstance(content, bytes):
            names.append(content.decode("utf-8", "replace"))
        elif part == VALUE_JSON and isinstance(content, bytes):
            value = content
    return between.join(names), _value(value)


def _row(history: bytes) -> dict[str, object]:
    from monitoring.trackers._protobuf import fields_in  # as above

    row: dict[str, object] = {}
    for number, item in fields_in(history):
        if number == ITEM and isinstance(item, bytes):
            name, row_value = _item(item, "/")
            row[name] = row_value
        elif number == STEP and isinstance(item, bytes):
            # the row's own, unless it logs a step of its own name
            row.setdefault("_step", dict(fields_in(item)).get(NUM, 0))
    return dict(sorted(row.items()))  # W&B writes them in any order


def _value(text: bytes) -> object:
    import orjson  # as above

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # W&B writes NaN and Infinity, which are no JSON
        word = text.decode("utf-8", "replace")
        try:
            return float(word)
        except ValueError:
            return word
