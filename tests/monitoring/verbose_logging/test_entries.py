"""The entries of each level, compared as wholes; times are those that the events say."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.verbose_logging.entries import Entries
from monitoring.verbose_logging.levels import LEVELS, verbosity

# 2025-01-10T11:30:00.123456 UTC
START = 1736508600.123456

USAGE: dict[str, Any] = {
    "cpu": {"usage_percent": 75.5},
    "memory": {"usage_percent": 68.2, "used_gb": 10.9},
    "gpu": {"devices": [{"index": 0, "memory_usage_percent": 85.3}]},
}
TREND = {"trend_direction": "stable"}


def entries(level: str) -> Entries:
    found = Entries(verbosity(level))
    found.usage(START, USAGE)
    found.train_begin(START, 0, 100, 8.0, {})
    return found


def test_an_entry_of_a_step_is_as_documented() -> None:
    of_high = entries("high")
    metrics: dict[str, Any] = {"loss": 0.234567, "learning_rate": 0.0001, "grad_norm": 1.234}
    of_high.step_end(START + 2, 1, 0.01, 2.0, metrics={})
    [entry] = of_high.step_end(START + 4, 2, 0.02, 1.5, metrics=metrics)
    trends: Any = entry.pop("trends")
    assert entry == {
        "timestamp": "2025-01-10T11:30:04.123456",
        "type": "training_step_complete",
        "level": "INFO",
        "message": "✅ Step 2 completed - Loss: 0.234567",
        "step": 2,
        "epoch": 1,
        "timing": {
            "step_time_seconds": 1.5,
            "avg_step_time_seconds": 1.75,
            "eta_minutes": pytest.approx(98 * 2 / 60),
            "estimated_completion": "2025-01-10T11:33:20.123456",
        },
        "metrics": metrics,
        "performance": {"steps_per_second": 0.5, "samples_per_second": 4.0, "step_share": 0.75},
        "resource_usage": USAGE,
    }
    assert trends["memory_usage_trend"] == {
        "current": 68.2,
        "avg_last_5": 68.2,
        "trend_direction": "stable",
        "slope_per_minute": 0.0,
        "num_values": 1,
    }
    assert list(trends) == [
        *("memory_usage_trend", "cpu_usage_trend", "gpu_0_memory_usage_trend"),
        *("loss_trend", "step_time_trend"),
    ]


def test_medium_has_every_fifth_step_with_basic_trends() -> None:
    of_medium = entries("medium")
    found = []
    for step in range(1, 11):
        found += of_medium.step_end(START + step, step, step / 10, 1.0, metrics={"loss": 0.5})
    assert [entry["step"] for entry in found] == [5, 10]
    assert found[0]["trends"] == {
        "memory_usage_trend": {"current": 68.2, "avg_last_5": 68.2, **TREND},
        "cpu_usage_trend": {"current": 75.5, "avg_last_5": 75.5, **TREND},
    }
    assert found[1]["resource_usage"] == USAGE


def everything(level: str) -> list[str]:
    """The types of a training in which all happens, twice for what a limit lets happen once."""
    made = Entries(verbosity(level))
    full = {"memory": {"usage_percent": 95.0}}
    found = made.system(START, {}) + made.initialized(START, {}) + made.usage(START, full)
    found += made.train_begin(START, 0, 21, None, {}) + made.epoch_begin(START, 0, 0.0)
    for step in range(1, 22):
        found += made.step_begin(START + step, step - 1, 0.0) + made.batch_end(START + step, step - 1, 0.0)
        found += made.step_end(START + step, step, 0.1, 9.0 if step == 21 else 1.0, metrics={})
        found += made.log(START + step, step, 0.1, {"loss": 1.0})
    found += made.prediction_step(START, 21) + made.prediction_step(START, 21) + made.evaluated(START, 21, {})
    found += made.saved(START, 21, {}) + made.epoch_end(START, 21, 1.0) + made.train_end(START, 21)
    return [str(entry["type"]) for entry in found]


def test_each_level_writes_its_types_and_all_below() -> None:
    types = {level: everything(level) for level in LEVELS}
    assert {level: set(found) for level, found in types.items()} == {
        level: verbosity.types for level, verbosity in LEVELS.items()
    }
    assert LEVELS["low"].types < LEVELS["medium"].types < LEVELS["high"].types < LEVELS["ultra"].types
    assert types["low"] == [
        *("system_initialization", "training_initialization", "training_start"),
        *("model_checkpoint_save", "epoch_complete", "training_complete"),
    ]
    assert types["medium"].count("training_step_complete") == 4
    assert types["high"].count("training_step_complete") == types["ultra"].count("step_begin") == 21
    assert types["ultra"].count("prediction_step") == 2
    assert types["high"].count("resource_warning") == types["high"].count("performance_anomaly") == 1


def test_low_holds_no_use_of_resources_but_final_statistics() -> None:
    of_low = entries("low")
    [entry] = of_low.train_end(START + 50, 100, {"final_metrics": {"loss": 0.1}})
    assert entry == {
        "timestamp": "2025-01-10T11:30:50.123456",
        "type": "training_complete",
        "level": "INFO",
        "message": "🎉 Training completed after step 100",
        "step": 100,
        "epoch": None,
        "statistics": {
            "total_steps": 100,
            "steps_done": 100,
            "total_seconds": 50.0,
            "avg_seconds_per_step": 0.5,
        },
        "final_metrics": {"loss": 0.1},
    }


def test_a_warning_says_what_is_full() -> None:
    of_high = entries("high")
    full = {"memory": {"usage_percent": 92.34}}
    assert of_high.usage(START + 1, full) == [
        {
            "timestamp": "2025-01-10T11:30:01.123456",
            "type": "resource_warning",
            "level": "WARNING",
            "message": "⚠️ High memory usage: 92.3%",
            "step": 0,
            "epoch": None,
            "resource": "memory",
            "usage_percent": 92.34,
            "limit_percent": 90.0,
            "resource_usage": full,
        }
    ]


def test_epochs_count_from_one() -> None:
    made = entries("ultra")
    [begun] = made.epoch_begin(START, 0, 0.0)
    [first] = made.step_end(START, 1, 0.5, None, metrics={})
    [last] = made.step_end(START, 2, 1.0, None, metrics={})
    [ended] = made.epoch_end(START, 2, 1.0)
    [again] = made.epoch_begin(START, 2, 1.0)
    assert [entry["epoch"] for entry in (begun, first, last, ended, again)] == [1, 1, 1, 1, 2]
    assert first["timing"]["step_time_seconds"] is None  # type: ignore[index]


def test_an_unknown_level_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="verbosity_level='loud' is none of low, medium, high, ultra"):
        verbosity("loud")
