"""MLflow's REST interface on loopback: its own messages are read, and its own store keeps what they say.

    python mlflow_server.py sqlite:////path/mlflow.db [BYTES]

It prints its address and serves until its input ends. MLflow's server needs Flask; this one has the calls
that a run's delivery makes, and puts artifacts into the folder `artifacts` beside the database. A request of
more than BYTES is refused, as a proxy before it would do.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from mlflow.entities import Metric, Param, RunStatus, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos import service_pb2 as proto
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.proto_json_utils import message_to_json, parse_dict

STORE = SqlAlchemyStore(sys.argv[1], "mlflow-artifacts:/")
ARTIFACTS = Path(sys.argv[1].removeprefix("sqlite:///")).with_name("artifacts")
MOST_BYTES = int(sys.argv[2]) if len(sys.argv) > 2 else 2**30


def create_run(ask: Any, answer: Any) -> None:
    tags = [RunTag.from_proto(tag) for tag in ask.tags]
    run = STORE.create_run(ask.experiment_id, ask.user_id, ask.start_time, tags, ask.run_name)
    answer.run.MergeFrom(run.to_proto())


def search_runs(ask: Any, answer: Any) -> None:
    found = STORE.search_runs(list(ask.experiment_ids), ask.filter, ViewType.ACTIVE_ONLY, ask.max_results)
    answer.runs.extend(run.to_proto() for run in found)


def log_batch(ask: Any, answer: Any) -> None:
    STORE.log_batch(
        ask.run_id,
        [Metric.from_proto(metric) for metric in ask.metrics],
        [Param.from_proto(param) for param in ask.params],
        [RunTag.from_proto(tag) for tag in ask.tags],
    )


def update_run(ask: Any, answer: Any) -> None:
    end = ask.end_time if ask.HasField("end_time") else None
    status = RunStatus.from_string(proto.RunStatus.Name(ask.status))
    answer.run_info.MergeFrom(STORE.update_run_info(ask.run_id, status, end, None).to_proto())


def get_experiment(ask: Any, answer: Any) -> None:
    found = STORE.get_experiment_by_name(ask.experiment_name)
    if found is None:
        raise MlflowException("no such experiment", error_code=proto_code("RESOURCE_DOES_NOT_EXIST"))
    answer.experiment.MergeFrom(found.to_proto())


def get_history(ask: Any, answer: Any) -> None:
    answer.metrics.extend(
        metric.to_proto() for metric in STORE.get_metric_history(ask.run_id, ask.metric_key)
    )


def proto_code(name: str) -> Any:
    from mlflow.protos.databricks_pb2 import ErrorCode

    return ErrorCode.Value(name)


CALLS: dict[str, tuple[Any, Callable[[Any, Any], None]]] = {
    "experiments/get-by-name": (proto.GetExperimentByName, get_experiment),
    "experiments/create": (
        proto.CreateExperiment,
        lambda ask, answer: setattr(answer, "experiment_id", STORE.create_experiment(ask.name)),
    ),
    "runs/create": (proto.CreateRun, create_run),
    "runs/search": (proto.SearchRuns, search_runs),
    "runs/get": (
        proto.GetRun,
        lambda ask, answer: answer.run.MergeFrom(STORE.get_run(ask.run_id).to_proto()),
    ),
    "runs/log-batch": (proto.LogBatch, log_batch),
    "runs/set-tag": (
        proto.SetTag,
        lambda ask, answer: STORE.set_tag(ask.run_id, RunTag(ask.key, ask.value)),
    ),
    "runs/update": (proto.UpdateRun, update_run),
    "metrics/get-history": (proto.GetMetricHistory, get_history),
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        self.answer({name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) <= MOST_BYTES:
            self.answer(json.loads(body))
        else:
            self.send(413, "text/html", "<h1>413 Request Entity Too Large</h1>")

    def do_PUT(self) -> None:
        path = ARTIFACTS / unquote(urlsplit(self.path).path.partition("/mlflow-artifacts/artifacts/")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send(200, "application/json", "{}")

    def answer(self, asked: dict[str, Any]) -> None:
        kind, call = CALLS[urlsplit(self.path).path.partition("/mlflow/")[2]]
        ask, answer, code = kind(), kind.Response(), 200
        parse_dict(asked, ask)
        try:
            call(ask, answer)
            body = message_to_json(answer)
        except MlflowException as error:
            body, code = error.serialize_as_json(), error.get_http_status_code()
        self.send(code, "application/json", body)

    def send(self, code: int, kind: str, body: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()
