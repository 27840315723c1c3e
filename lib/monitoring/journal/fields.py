"""What is known of each field of records and reports: one row per field; every table elsewhere is a view.

A field that a training of yours logs needs no row: it is kept and shown, its unit is unknown, and `make
reproduce` compares it, because a difference that nobody looked at is worse than one that is explained. Names
that say what they are (`tokens_per_second`, `backup_seconds`) are covered by patterns at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

from monitoring.journal.files import CONTROL_JSON, RUN_JSON

Better = Literal["up", "down", "neither"]

Kind = Literal["result", "machine", "wall time"]
"""A result is equal bit for bit when a training is reproduced. What the machine did (speed, memory, power,
paths) is not; wall time is the part of it that other programs on the machine make longer."""

EVERY, STEP, EVAL, EPOCH, CHECKPOINT = "every", "step", "eval", "epoch", "checkpoint"
START, END, GAP, GPU, SYSTEM = "start", "end", "gap", "gpu", "system"
CONTROL_CHANGE, CONTROL_REFUSED = "control_change", "control_refused"
"""Places: events of records, and `every` for what is in each."""
OF_GPU, OF_GPUS, TRACKERS = "of_gpu", "of_gpus", "trackers"
"""Places in a gpu record: one GPU of `multi_gpu_data`, `aggregate_stats`, and its points in trackers."""
REPORT, SCRAPE, OWN = "report", "scrape", "own"
"""Places outside of records: a number of a run in reports, a metric of Prometheus, a name of your own."""

MEASURED = frozenset({EVERY, STEP, EVAL, EPOCH, CHECKPOINT, END, SYSTEM, TRACKERS, REPORT})
"""Where a name means a measurement: a `lost` of your own is not that of a gap."""


class FieldRow(NamedTuple):
    """One field, or a family of fields whose names follow a pattern."""

    name: str
    """In a pattern `*` stands for any text and `N` for a number."""
    unit: str
    """Empty for what has none: texts, hashes, truth values, ratios without a scale."""
    about: Mapping[str, str]
    """Place -> what the field is there, and how it is measured."""
    better: Better = "neither"
    kind: Kind = "result"
    prometheus: str = ""
    """Its name in Prometheus."""
    prometheus_type: str = ""
    dcgm: str = ""
    """Its name in dcgm-exporter, which NVIDIA's GPUs are shown by, too."""
    dcgm_factor: float = 1.0
    """What brings the value into dcgm's unit."""
    of: str = ""
    """The field of step records that a number of reports is made of."""
    line: str = ""
    """Its name in lines of training_metrics_*.jsonl."""

    @property
    def smaller_is_better(self) -> bool:
        return self.better == "down"

    @property
    def help(self) -> str:
        """The help text in Prometheus."""
        text = self.about[SCRAPE].replace("`", "")
        return text[0].upper() + text[1:]


UNITS = {
    "fraction": "0 to 1",
    "GB": "GB, 1e9 bytes",
    "MB": "MB, 1e6 bytes",
    "MiB": "MiB, 2^20 bytes",
}
"""Unit -> how docs write it out; others stand as they are."""

UNKNOWN_UNIT = "unit unknown"


def _rows(
    names: str,
    unit: str = "",
    better: Better = "neither",
    kind: Kind = "result",
    *,
    prometheus: str = "",
    prometheus_type: str = "",
    dcgm: str = "",
    dcgm_factor: float = 1.0,
    of: str = "",
    line: str = "",
    **about: str,
) -> list[FieldRow]:
    """A row for each of some names that have everything in common."""
    if prometheus:
        about = {**about, SCRAPE: about.get(SCRAPE) or next(iter(about.values()))}
        prometheus_type = prometheus_type or ("counter" if prometheus.endswith("_total") else "gauge")
    return [
        FieldRow(name, unit, about, better, kind, prometheus, prometheus_type, dcgm, dcgm_factor, of, line)
        for name in names.split()
    ]


def _shown(name: str, text: str, unit: str = "", *, kind: Kind = "machine") -> list[FieldRow]:
    """The row of a metric that only Prometheus has."""
    return _rows(name, unit, kind=kind, prometheus=name, scrape=text)


# Texts end without a full stop; `;` and `.` may stand within. In the order of docs/metrics.md.
FIELDS: tuple[FieldRow, ...] = (
    # In every record.
    *_rows("event", every="which kind of record this is"),
    *_rows("time", "s, UTC epoch", every="the system's clock when the record was logged", kind="machine"),
    *_rows("seq", "from 1", every="counts the run's records over all attempts", kind="machine"),
    *_rows("attempt", "from 1", every="counts the processes that have written the run", kind="machine"),
    *_rows("nonfinite", "field names",
           every="only if a value was NaN or infinite: these were, and are `null`"),
    *_rows("unserializable", "field names",
           every="only if a value, or a part of one, has no JSON form: these, or those parts, are `null`"),
    *_rows("refused_step",
           every="only if the step given is no integer of 64 bits: how it looked, in at most 100 "
                 "characters; there is no `global_step` then"),
    *_rows("global_step", "from 1",
           every="optimiser steps done; in every record but start, end and gap"),
    # Losses, accuracies and what else comes of the training itself.
    *_rows("train_loss", "nats", "down", prometheus="training_loss", of="train_loss", line="loss",
           step="mean cross-entropy of the step's batch, before its update",
           epoch="mean over the epoch's samples, each before the update of its step",
           report="mean training loss of the last epoch",
           scrape="loss of the last recorded step, NaN if it was no finite number"),
    *_rows("lr", prometheus="learning_rate", line="learning_rate",
           step="the learning rate that the step used",
           scrape="learning rate that the last recorded step used"),
    *_rows("grad_norm", prometheus="gradient_norm", line="gradient_norm",
           step="2-norm of all gradients together, before the update",
           scrape="2-norm of all gradients of the last recorded step"),
    *_rows("samples_per_sec", "1/s", "up", "machine",
           prometheus="training_samples_per_second", line="throughput_samples_per_sec",
           step="samples of the steps since the last step record, by the clock of `sec_per_step`",
           scrape="throughput of the last recorded step"),
    *_rows("sec_per_step", "s", "down", "wall time", of="sec_per_step", line="step_duration_seconds",
           prometheus="training_step_duration_seconds", prometheus_type="histogram",
           step="time a step since the last step record, without evaluations and checkpoints. On a CPU by "
                "the wall clock. On a GPU by its own, between the ends of the last steps of two records: the "
                "time of doing the work, pauses in which the GPU waits for the host included, and not "
                "that of queueing it",
           report="median time of one step, over the recorded steps",
           scrape="time per step, one observation a step record: the mean of its `LOG_EVERY` steps"),
    *_rows("data_seconds", "s", "down", "wall time",
           step="a step's wait for its batch; this and the two below are means of the steps since the last "
                "step record, for the [balance between ranks](gpu-load.md). On a GPU they are its own time, "
                "by events; the record is written when it has done these steps"),
    *_rows("forward_backward_seconds", "s", "down", "wall time",
           step="forward and backward of a step, without collectives"),
    *_rows("forward_seconds backward_seconds", "s", "down", "wall time",
           step="the two parts of it, where a training ends them one by one"),
    *_rows("optimizer_seconds", "s", "down", "wall time",
           step="the gradient norm, its check, and the update of the weights with what pruning adds"),
    *_rows("collective_seconds", "s", "down", "wall time",
           step="what a step waits for other ranks, left out of the three above; only where a training "
                "leaves it out"),
    *_rows("tokens_per_second", "1/s", "up", "machine",
           step="only of text: `samples_per_sec` times the tokens of a sample"),
    *_rows("step_mfu", "fraction", "up", "machine",
           step="with `INCLUDE_PERFORMANCE_METRICS`: model FLOPs utilisation, the model's FLOPs of a step by "
                "`sec_per_step` and the peak of all devices; `null` where the peak is not known"),
    *_rows("overall_mfu", "fraction", "up", "machine",
           step="the same of all steps so far, over the time of the training with its evaluations and "
                "checkpoints"),
    *_rows("step_hfu", "fraction", "up", "machine",
           step="only where a model computes something twice (activation checkpointing): `step_mfu` with "
                "that"),
    *_rows("flops_per_step", "FLOP", kind="machine",
           end="with `INCLUDE_PERFORMANCE_METRICS`: of the model in a step, forward and backward, by torch's "
               "counter"),
    *_rows("flops_per_step_6n", "FLOP", kind="machine",
           end="the same of text by the formula of 6 FLOPs a parameter and token, without attention"),
    *_rows("gpu_mem_allocated", "GB", "down", "machine",
           prometheus="memory_allocation_mb", prometheus_type="summary",
           step="what `torch.cuda.memory_allocated` gives; `null` without a GPU",
           scrape="GPU memory that PyTorch's allocator has given out, MiB, one observation a step record; "
                  "no series without a GPU"),
    *_rows("gpu_mem_reserved", "GB", "down", "machine",
           step="what `torch.cuda.memory_reserved` gives; `null` without a GPU"),
    *_rows("cpu_mem_rss_mb", "MB", "down", "machine",
           step="resident memory of the training process, `/proc/self/statm`, at most 1 s old"),
    *_rows("sparsity", "fraction", "up", prometheus="training_sparsity",
           step="only with a `PRUNING` method: share of the prunable weights (two or more dimensions) that "
                "is zero after the update, counted",
           epoch="only with a `PRUNING` method: as in a step record, at the end of the epoch",
           end="only with a `PRUNING` method: of the final weights, which the test figures are of",
           report="share of the prunable weights that is zero in the end",
           scrape="share of the prunable weights that is zero after the last recorded step"),
    *_rows("nan_inf_detected", step="whether a value of this record was NaN or infinite"),
    *_rows("nonfinite_ranks",
           step="only if the loss or the gradient norm is not finite: the ranks whose own loss is not, or "
                "all where only the gradients are not"),
    *_rows("sample_indices",
           step="only with `nonfinite_ranks`: which training samples they had in this step"),
    *_rows("skipped",
           step="only if the step changed no weight, by `GUARD_MAX_SKIPS`: true"),
    *_rows("split",
           eval="`val` (held out of the training set), `test`, or `inference`: what the trained model does"),
    *_rows("batch_N_latency_seconds", "s", "down", "wall time",
           eval="median time from a batch of N samples on the device to its logits"),
    *_rows("batch_N_samples_per_sec", "1/s", "up", "machine", eval="N by that time"),
    *_rows("batch_N_accuracy", "fraction", "up", eval="of the test samples that were timed"),
    *_rows("predictions",
           eval="of some test samples: `label`, `predicted` and `probability`; a picture shows them"),
    *_rows("val_loss", "nats", "down", prometheus="validation_loss",
           eval="mean cross-entropy over the split", epoch="as in the eval record at its end",
           report="loss of the last validation", scrape="loss of the last evaluation on the validation set"),
    *_rows("test_loss", "nats", "down",
           eval="mean cross-entropy over the split",
           end="of the final weights; the test set is read once",
           report="loss on the test set, read once after training"),
    *_rows("val_accuracy", "fraction", "up", prometheus="validation_accuracy",
           eval="fraction of the split that is classified right", epoch="as in the eval record at its end",
           report="accuracy of the last validation",
           scrape="accuracy of the last evaluation on the validation set, 0 to 1"),
    *_rows("test_accuracy", "fraction", "up",
           eval="fraction of the split that is classified right",
           end="of the final weights; the test set is read once",
           report="accuracy on the test set, read once after training"),
    *_rows("epoch", "from 1", epoch="epochs done"),
    *_rows("epoch_seconds", "s", "down", "wall time",
           epoch="wall clock, with its evaluation; of an epoch that was resumed, without what was done "
                 "again"),
    # Checkpoints.
    *_rows("checkpoint_path", kind="machine", checkpoint="the file, which is complete on disk"),
    *_rows("best", checkpoint="whether it has the lowest `val_loss` so far"),
    *_rows("reason",
           checkpoint="of one that was made on request: the signal that requested it, or the `source` of a "
                      "request",
           end="of an interrupted one: the signal that requested it, or the `source` of a request",
           gap="the system's last answer",
           control_refused="what is wrong with the request"),
    # Requests to a running training.
    *_rows("control", control_change=f"what was changed or done: a word of `{CONTROL_JSON}`"),
    *_rows("old", control_change="its value before; `null` of what is done once"),
    *_rows("new", control_change="its value from the next step on, `log_every` from this one"),
    *_rows("source", control_change=f"who requested it: what the request says, else `{CONTROL_JSON}`",
           control_refused=f"who requested it: what the request says, else `{CONTROL_JSON}`"),
    *_rows("request_time", "s, UTC epoch", kind="machine",
           control_change="the request's `timestamp`",
           control_refused="the request's `timestamp`; `null` where none can be read"),
    *_rows("requested_value", control_change="only where another value is applied: the requested one"),
    *_rows("replayed",
           control_change="only of a change that an earlier attempt, or the reproduced run, made after the "
                          "same step: true"),
    *_rows("model_sha256", checkpoint="of all weights; runs with the same one are equal to the last bit"),
    *_rows("optimizer_sha256", checkpoint="of the optimiser's state, in the same way"),
    # What a start record says.
    *_rows("resumed_from",
           start="`checkpoint` (file name), its `attempt`, `global_step` and `journal_seq` (the last record "
                 "that belongs to it); `null` for an attempt that began at step 0"),
    *_rows("supersedes",
           start="`first_seq` and `last_seq`: the measurements between them no longer count, because this "
                 "attempt does them again; `null` if there are none"),
    *_rows("passed_over",
           start="newer checkpoints that could not be used: `checkpoint` and `reason` of each"),
    *_rows("run_name project run_id", start=f"as in `{RUN_JSON}`"),
    *_rows("correlation_id",
           start="the run's id; every file that the run writes, on every rank, has it under this name",
           gpu="the run's id", system="the run's id"),
    *_rows("rank", start="of a rank above 0: which it is; its process is described by the fields below, that "
                         f"of rank 0 in `{RUN_JSON}`"),
    *_rows("host", start="of a rank above 0: the machine it runs on", gpu="the machine of the GPUs",
           system="the machine"),
    *_rows("pid pid_started started command cwd", start="of a rank above 0: its process"),
    *_rows("visible_devices",
           start="of a rank above 0: the variables that select its GPUs (`CUDA_VISIBLE_DEVICES` …); absent "
                 "if none is set"),
    *_rows("num_steps num_epochs steps_per_epoch", start="the plan; the last step is `num_steps`"),
    *_rows("tokens_per_sample", "tokens", start="only of text: the length of a sequence"),
    *_rows("batch_size", "samples", start="of one optimiser step"),
    *_rows("optimizer",
           start="its name, every option it was built with, and its `groups` of parameters: their names, the "
                 "`count` of their elements, their decay and peak learning rate"),
    *_rows("pruning", start="method and every option; `null` without pruning"),
    *_rows("schedule",
           start="name, peak learning rate, number of steps, fraction of them that warms up"),
    *_rows("dataset", "samples", start="its name and the size of each split"),
    *_rows("tokenizer_sha256", start="only of text: which tokenizer made its tokens"),
    *_rows("data_sha256", start="of the images and labels, or of the tokens, as they were trained on"),
    *_rows("seed", start="of initial weights and order of samples"),
    *_rows("device", start="where the tensors are, and why"),
    *_rows("cpu_threads", start="threads of a tensor operation"),
    *_rows("world_size", start="processes of the training, each with its part of every batch"),
    *_rows("automatic",
           start="only where trials have chosen an option (`BATCH_SIZE_AUTO`): by symbol its `value`, the "
                 "`provenance` `auto` and the `reason`"),
    *_rows("numerics",
           start="what else decides the last bits, as torch reports it: deterministic algorithms, cuDNN's "
                 "`deterministic` and `benchmark`, `CUBLAS_WORKSPACE_CONFIG`, whether TF32 may be used; on a "
                 "GPU its name and compute capability, and the versions of CUDA, cuDNN and the driver"),
    *_rows("model", start="name, number of parameters, architecture"),
    *_rows("lora_rank lora_alpha lora_dropout target_modules",
           start="only of a model with PEFT's adapters: of the active one"),
    *_rows("config", start="every configuration value"),
    *_rows("hardware", "memory in bytes",
           start="host, processor, cores (and those this process may use), memory, and the GPUs that torch "
                 "can use (`[]` for a training on the CPU, which does not start CUDA)"),
    *_rows("versions", start="Python, system, and the packages that can change a result"),
    *_rows("git", start="revision, whether files differ from it, SHA-256 of that difference"),
    # What an end record says.
    *_rows("status",
           end="`complete`, `interrupted` (stopped on request, everything saved) or `failed`"),
    *_rows("cause",
           end="of all but complete ones: `stopped`, `non_finite`, `lost_rank`, `out_of_memory`, "
               "`disk_full`, `device` (the driver reported an error), `refused` (you can fix it) or `error`"),
    *_rows("error", end="of a failed one: the exception", of_gpu="why the state is not `ok`"),
    *_rows("steps_done", "steps", end="over all attempts"),
    *_rows("tokens_seen", "tokens", end="only of text: trained on, over all attempts"),
    *_rows("samples", end="only of text: what the trained model wrote, `GPT2_SAMPLE_TOKENS` long"),
    *_rows("training_seconds", "s", "down", "wall time",
           end="wall clock of training and validation over all attempts; what was lost in a crash and done "
               "again counts once",
           report="wall time of the training loop"),
    *_rows("training_cpu_seconds", "s", "down", "machine",
           end="CPU time of the same, user and system, of the process and the children it waited for; null "
               "on from a checkpoint that does not hold it",
           report="CPU time, user and system, of the training loop and the children it waited for"),
    *_rows("best_val_loss", "nats", "down", end="the lowest of any epoch",
           report="lowest loss of any validation"),
    *_rows("best_val_accuracy", "fraction", "up", end="the highest of any epoch",
           report="highest accuracy of any validation"),
    # What only reports have.
    *_rows("other_work", "fraction", "down", "machine",
           report="share of the processors that other programs kept busy meanwhile"),
    *_rows("peak_gpu_memory", "GB", "down", "machine", of="gpu_mem_reserved",
           report="highest gpu_mem_reserved of any recorded step, 1e9 bytes"),
    *_rows("peak_cpu_memory", "MB", "down", "machine", of="cpu_mem_rss_mb",
           report="highest cpu_mem_rss_mb of any recorded step, 1e6 bytes"),
    # Gaps of the journal.
    *_rows("seconds", "s", kind="machine",
           gap="from the first refusal until everything kept was written"),
    *_rows("delayed", "records", kind="machine", gap="written late"),
    *_rows("lost", "records", kind="machine",
           gap="dropped, the oldest first, because more than 16 MiB waited"),
    *_rows("first_lost_seq last_lost_seq", kind="machine", gap="which; `null` if none"),
    # A machine: what lib/monitoring/samplers/machine.py reads.
    *_rows("cpu_usage_percent", "%", kind="machine", prometheus="system_cpu_percent",
           system="share of the time in which the processors that may be used were busy, since the sample "
                  "before: those of the cpuset, or what a quota allows; `/proc/stat`, else `cpu.stat`"),
    *_rows("cpu_count", kind="machine", prometheus="system_cpus",
           system="processors that may be used; 1.5 with a quota of one and a half"),
    *_rows("load_average_1m", kind="machine", prometheus="system_load_average_1m",
           system="processes that run or wait for a processor or a disk, over a minute"),
    *_rows("trainer_cpu_percent", "%", kind="machine", prometheus="training_cpu_percent",
           system="share of the same processors, of the training's processes on the machine, all ranks and "
                  "what they started"),
    *_rows("trainer_memory_gb", "GB", kind="machine", prometheus="training_memory_bytes",
           system="resident memory of these; what several share counts for each"),
    *_rows("trainer_processes", kind="machine", prometheus="training_processes", system="how many these are"),
    *_rows("trainer_open_files", kind="machine", prometheus="training_open_files",
           system="file descriptors of these; `null` where they are another user's"),
    *_rows("memory_usage_percent", "%", kind="machine", prometheus="system_memory_percent",
           system="memory in use of the total"),
    *_rows("memory_used_gb", "GB", kind="machine", prometheus="system_memory_used_bytes",
           system="memory that cannot be had back at once: total less available, as `free` has it; in a "
                  "limited group its use less inactive file pages"),
    *_rows("memory_total_gb", "GB", kind="machine", prometheus="system_memory_total_bytes",
           system="memory of the machine, or the tightest limit of a group"),
    *_rows("swap_usage_percent", "%", kind="machine", prometheus="system_swap_percent",
           system="swap in use of the total; `null` without swap"),
    *_rows("swap_used_gb swap_total_gb", "GB", kind="machine", system="swap, in the same way"),
    *_rows("disk_usage_percent", "%", kind="machine", prometheus="system_disk_percent",
           system="of the file system of the run directory, as `df`"),
    *_rows("disk_free_gb", "GB", kind="machine", prometheus="system_disk_free_bytes",
           system="what may still be written there"),
    *_rows("disk_total_gb", "GB", kind="machine", prometheus="system_disk_total_bytes",
           system="size of that file system"),
    *_rows("disk_read_bytes", "bytes", kind="machine", prometheus="system_disk_read_bytes_total",
           system="bytes that all disks of the machine have read since it was booted"),
    *_rows("disk_written_bytes", "bytes", kind="machine", prometheus="system_disk_written_bytes_total",
           system="bytes that all disks of the machine have written since it was booted"),
    *_rows("network_sent_bytes", "bytes", kind="machine", prometheus="system_network_sent_bytes_total",
           system="bytes sent over all interfaces but the loopback, since the boot"),
    *_rows("network_received_bytes", "bytes", kind="machine",
           prometheus="system_network_received_bytes_total",
           system="bytes received over all interfaces but the loopback, since the boot"),
    *_rows("cpu_temperature_celsius", "°C", kind="machine", prometheus="system_cpu_temperature_celsius",
           system="of the hottest sensor of a processor (coretemp, k10temp, zenpower, cpu_thermal)"),
    *_rows("temperatures", "°C", kind="machine",
           system="all sensors in `/sys/class/hwmon` by chip and label; `null` without any"),
    *_rows("open_files", kind="machine", prometheus="system_open_files",
           system="file descriptors on the whole machine"),
    *_rows("open_files_limit", kind="machine", system="how many there may be"),
    *_rows("cgroup_limits", "names", kind="machine",
           system="which of `cpu`, `memory` and `swap` a control group limits further than the machine does"),
    # One GPU of a sample: docs/gpu-monitoring.md has the source of each value, vendor by vendor.
    *_rows("multi_gpu_data", kind="machine", gpu="a list with the values of each GPU"),
    *_rows("aggregate_stats", kind="machine", gpu="the run's GPUs together, and their balance"),
    *_rows("index", kind="machine", of_gpu="its number on this machine, whichever GPUs are selected"),
    *_rows("uuid name vendor", kind="machine", of_gpu="which device it is"),
    *_rows("state", kind="machine", of_gpu="`ok`, `lost` (it does not answer any more) or `error`"),
    *_rows("utilization_percent", "%", "up", "machine", prometheus="gpu_utilization_percent",
           dcgm="DCGM_FI_DEV_GPU_UTIL",
           of_gpu="share of the time in which a kernel ran"),
    *_rows("memory_utilization_percent", "%", kind="machine", prometheus="gpu_memory_utilization_percent",
           dcgm="DCGM_FI_DEV_MEM_COPY_UTIL",
           of_gpu="share of the time in which the memory was read or written"),
    *_rows("memory_used_mb", "MiB", "down", "machine", prometheus="gpu_memory_used_mb",
           dcgm="DCGM_FI_DEV_FB_USED",
           of_gpu="memory in use, MiB, as in nvidia-smi"),
    *_rows("memory_total_mb", "MiB", kind="machine", prometheus="gpu_memory_total_mb",
           of_gpu="memory of the GPU, MiB, as in nvidia-smi"),
    *_rows("memory_free_mb", "MiB", kind="machine", prometheus="gpu_memory_free_mb",
           dcgm="DCGM_FI_DEV_FB_FREE",
           of_gpu="memory that is neither in use nor reserved by the driver, MiB"),
    *_rows("memory_percent", "%", "down", "machine", of_gpu="memory in use of the total"),
    *_rows("temperature_celsius", "°C", kind="machine", prometheus="gpu_temperature_celsius",
           dcgm="DCGM_FI_DEV_GPU_TEMP",
           of_gpu="temperature of the core"),
    *_rows("temperature_hotspot_celsius", "°C", kind="machine", of_gpu="temperature of the hottest place"),
    *_rows("temperature_memory_celsius", "°C", kind="machine", prometheus="gpu_temperature_memory_celsius",
           dcgm="DCGM_FI_DEV_MEMORY_TEMP",
           of_gpu="temperature of the memory"),
    *_rows("temperature_margin_celsius", "°C", kind="machine",
           of_gpu="degrees left until the device slows itself down"),
    *_rows("power_draw_watts", "W", kind="machine", prometheus="gpu_power_draw_watts",
           dcgm="DCGM_FI_DEV_POWER_USAGE",
           of_gpu="power drawn"),
    *_rows("power_average_watts", "W", kind="machine", of_gpu="mean of the power drawn"),
    *_rows("power_limit_watts", "W", kind="machine", prometheus="gpu_power_limit_watts",
           of_gpu="power that the GPU may draw"),
    *_rows("energy_joules", "J", "down", "machine", of="energy_joules",
           of_gpu="energy used since the run began, by all its users",
           of_gpus="the run's share of the energy of its GPUs; `null` if it has none",
           step="only of a training that logs it: energy of its devices so far",
           end="only of a training that logs it: energy of its devices",
           report="energy of the devices over the training"),
    *_rows("energy_source", kind="machine", of_gpu="`counter` or `integrated` power",
           of_gpus="those of the run's GPUs, joined by `+`"),
    *_rows("energy_counter_joules", "J", kind="machine", prometheus="gpu_energy_joules_total",
           dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", dcgm_factor=1000.0,
           of_gpu="the device's own counter, which began when the driver was loaded",
           scrape="energy used, by the device's own counter, since the driver was loaded"),
    *_rows("fan_speed_percent", "%", kind="machine", prometheus="gpu_fan_speed_percent",
           of_gpu="fan speed"),
    *_rows("clock_sm_mhz", "MHz", kind="machine", prometheus="gpu_clock_sm_hertz",
           dcgm="DCGM_FI_DEV_SM_CLOCK",
           of_gpu="clock of the processors"),
    *_rows("clock_memory_mhz", "MHz", kind="machine", prometheus="gpu_clock_memory_hertz",
           dcgm="DCGM_FI_DEV_MEM_CLOCK",
           of_gpu="clock of the memory"),
    *_rows("throttle_reasons", "names", kind="machine", prometheus="gpu_throttle_reason",
           dcgm="DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
           of_gpu="why the clocks are lower than requested; empty if they are not",
           scrape="1 if the clocks are lower than requested for that reason, else 0; label `reason`"),
    *_rows("pcie_tx_bytes", "bytes", kind="machine", prometheus="gpu_pcie_sent_bytes_total",
           of_gpu="bytes that the GPU sent over PCIe since the driver was loaded"),
    *_rows("pcie_rx_bytes", "bytes", kind="machine", prometheus="gpu_pcie_received_bytes_total",
           of_gpu="bytes that the GPU received over PCIe since the driver was loaded"),
    *_rows("pcie_replay_count", kind="machine", prometheus="gpu_pcie_replays_total",
           dcgm="DCGM_FI_DEV_PCIE_REPLAY_COUNTER", of_gpu="transfers over PCIe that were repeated"),
    *_rows("nvlink_tx_bytes", "bytes", kind="machine", prometheus="gpu_nvlink_sent_bytes_total",
           of_gpu="bytes that the GPU sent over all NVLinks"),
    *_rows("nvlink_rx_bytes", "bytes", kind="machine", prometheus="gpu_nvlink_received_bytes_total",
           of_gpu="bytes that the GPU received over all NVLinks"),
    *_rows("ecc_corrected", "errors", kind="machine", prometheus="gpu_ecc_corrected_errors_total",
           dcgm="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
           of_gpu="memory errors that were corrected, since the driver was loaded"),
    *_rows("ecc_uncorrected", "errors", kind="machine", prometheus="gpu_ecc_uncorrected_errors_total",
           dcgm="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
           of_gpu="memory errors that could not be corrected, since the driver was loaded"),
    *_rows("remapped_rows", "rows", kind="machine", of_gpu="rows of memory that were replaced"),
    *_rows("remapped_rows_correctable", "rows", kind="machine",
           prometheus="gpu_remapped_rows_correctable_total", dcgm="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
           of_gpu="rows of memory that were replaced because of errors that could be corrected"),
    *_rows("remapped_rows_uncorrectable", "rows", kind="machine",
           prometheus="gpu_remapped_rows_uncorrectable_total", dcgm="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
           of_gpu="rows of memory that were replaced because of errors that could not"),
    *_rows("row_remap_failure", kind="machine", prometheus="gpu_row_remap_failure",
           dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE", of_gpu="1 if a row of memory could not be replaced, else 0"),
    *_rows("xid_errors", "errors", kind="machine", prometheus="gpu_xid_errors_total",
           of_gpu="Xid errors that the driver reported since sampling began"),
    *_rows("xid_last_error", kind="machine", prometheus="gpu_xid_last_error", dcgm="DCGM_FI_DEV_XID_ERRORS",
           of_gpu="number of the last of them, 0 before the first",
           scrape="number of the last Xid error since sampling began, 0 before the first"),
    *_rows("encoder_percent", "%", kind="machine", prometheus="gpu_encoder_utilization_percent",
           dcgm="DCGM_FI_DEV_ENC_UTIL", of_gpu="share of the time in which the video encoder was in use"),
    *_rows("decoder_percent", "%", kind="machine", prometheus="gpu_decoder_utilization_percent",
           dcgm="DCGM_FI_DEV_DEC_UTIL", of_gpu="share of the time in which the video decoder was in use"),
    *_rows("sm_activity_percent", "%", kind="machine", prometheus="gpu_sm_activity_percent",
           dcgm="DCGM_FI_PROF_SM_ACTIVE", dcgm_factor=0.01,
           of_gpu="share of cycles in which a multiprocessor worked"),
    *_rows("tensor_activity_percent", "%", kind="machine", prometheus="gpu_tensor_activity_percent",
           dcgm="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", dcgm_factor=0.01,
           of_gpu="share of cycles in which the tensor cores worked"),
    *_rows("dram_activity_percent", "%", kind="machine", prometheus="gpu_dram_activity_percent",
           dcgm="DCGM_FI_PROF_DRAM_ACTIVE", dcgm_factor=0.01,
           of_gpu="share of cycles in which the memory was read or written"),
    *_rows("processes", "pid, name, MB, %", kind="machine", of_gpu="that compute on it"),
    *_rows("mig", kind="machine", of_gpu="its MIG instances; `null` if it is not partitioned"),
    *_rows("numa_node", kind="machine", of_gpu="of its PCI device"),
    *_rows("run_share", "0 to 1", kind="machine",
           of_gpu="share of its time that is the run's, `1 / processes` where others compute on it; `null` "
                  "for other GPUs of this machine"),
    # The run's GPUs of a sample together.
    *_rows("devices", "indices", kind="machine",
           of_gpus="the run's GPUs; `null` as long as they are not known, empty for a training on the CPU"),
    *_rows("devices_source", kind="machine",
           of_gpus="how they are known: `processes`, `device` or `selection`"),
    *_rows("gpu_count", kind="machine", of_gpus="how many they are"),
    *_rows("lost", "indices", kind="machine", of_gpus="those that do not answer any more"),
    *_rows("total_memory_used_mb total_memory_mb", "MiB", kind="machine", of_gpus="over the run's GPUs"),
    *_rows("total_memory_percent", "%", kind="machine", of_gpus="memory in use of the total"),
    *_rows("average_utilization", "%", "up", "machine", of_gpus="mean over the run's GPUs"),
    *_rows("total_power_watts", "W", kind="machine", of_gpus="over the run's GPUs"),
    *_rows("max_temperature_celsius", "°C", kind="machine", of_gpus="of the hottest core"),
    *_rows("load_balance", "%", kind="machine", prometheus="gpu_load_balance_cv_percent",
           of_gpus="for each of memory, utilization and power its `cv` and `quality`",
           scrape="standard deviation over mean of the run's GPUs; label `quantity`: `memory`, "
                  "`utilization`, `power`"),
    *_rows("gpu_hours", "h", "down", "machine", of_gpus="wall clock times the run's share of its GPUs"),
    *_rows("unmeasured_seconds", "s", kind="machine",
           of_gpus="in which nobody sampled, and no counter counted"),
    *_rows("cost", "", "down", "machine", prometheus="gpu_cost_total", of="cost",
           of_gpus="`gpu_hours` times `GPU_HOUR_PRICE`; `null` without a price",
           step="only of a training that logs it: what it cost so far",
           end="only of a training that logs it: what it cost",
           report="cost of the training in the currency of its price",
           scrape="GPU hours times `GPU_HOUR_PRICE`, in its currency"),
    # The points of a gpu record in trackers.
    *_rows("gpu_total_memory_used", "MiB", kind="machine", trackers="over the run's GPUs"),
    *_rows("gpu_total_memory_percent", "%", kind="machine", trackers="memory in use of the total"),
    *_rows("gpu_average_utilization", "%", "up", "machine", trackers="mean over the run's GPUs"),
    *_rows("gpu_total_power", "W", kind="machine", trackers="over the run's GPUs"),
    *_rows("gpu_max_temperature", "°C", kind="machine", trackers="of the hottest core"),
    *_rows("gpu_load_balance_cv", "%", "down", "machine",
           trackers="coefficient of variation of the memory used"),
    *_rows("gpu_load_balance_quality", "text", kind="machine", trackers="its band"),
    *_rows("gpu_load_balance_memory_cv gpu_load_balance_utilization_cv gpu_load_balance_power_cv", "%",
           "down", "machine", trackers="coefficient of variation of each"),
    *_rows("gpu_energy_joules", "J", "down", "machine", trackers="of the run since it began"),
    *_rows("gpu_cost", "", "down", "machine", trackers="in the currency of `GPU_HOUR_PRICE`, with a price"),
    *_rows("gpu_N_memory_used", "MiB", "down", "machine", trackers="of each GPU of the run by its `index`"),
    *_rows("gpu_N_utilization", "%", "up", "machine", trackers="of each GPU of the run by its `index`"),
    *_rows("gpu_N_temperature", "°C", kind="machine", trackers="of each GPU of the run by its `index`"),
    *_rows("gpu_N_power", "W", kind="machine", trackers="of each GPU of the run by its `index`"),
    # Metrics that only Prometheus has.
    *_shown("gpu_up", "1 if the GPU answers, 0 if it is lost or cannot be read"),
    *_shown("kharness_build_info", "always 1; what serves the metrics: labels `version`, `python_version`"),
    *_shown("kharness_run_info",
            "always 1; which run computes on which GPU: labels `run`, `project`, `rank`, `gpu`, `uuid`, "
            "`host`"),
    *_shown("training_energy_joules_total",
            "the run's share of the energy of its GPUs, since its sampling began", "J"),
    *_shown("training_steps_total", "highest optimiser step reached; one that is done again counts once",
            kind="result"),
    *_shown("training_step", "optimiser steps done; a resumed run goes back to its checkpoint",
            kind="result"),
    *_shown("training_planned_steps", "steps after which the run is complete", kind="result"),
    *_shown("training_epoch", "epochs done, with the fraction of the current one", kind="result"),
    *_shown("training_nonfinite_records_total", "records with a value that is no finite number",
            kind="result"),
    *_shown("training_last_step_timestamp_seconds",
            "when the last step was recorded, or the attempt began that has none yet", "s, UTC epoch"),
    *_shown("training_running", "1 while the run's process trains, else 0"),
    *_shown("training_run_info", "always 1; which run this is: labels `run_id`, `project`, `group`"),
    *_shown("training_alert_firing",
            "1 while an alert of the run's own rules fires; labels `rule`, `subject`"),
    # Names that say what they are. The first pattern that fits holds.
    *_rows("tokens_per_second tokens_per_sec", "1/s", "up", "machine", own="throughput"),
    *_rows("step_mfu train_mfu mfu* *_mfu", "fraction", "up", "machine", own="model FLOPs utilisation"),
    *_rows("tflops *_tflops", "TFLOP/s", "up", "machine", own="floating-point operations"),
    *_rows("eta_minutes", "min", "down", "machine", own="time left"),
    *_rows("rankN_*", UNKNOWN_UNIT, kind="machine",
           own="timers, memory and temperature of one rank, as `rank000_steps_mean`"),
    *_rows("activation_mean/* activation_std/* activation_max_abs/*", "",
           own="of what a layer gives out in its first call of a step: with `ACTIVATION_STATISTICS_EVERY`"),
    *_rows("activation_zero_fraction/*", "fraction", own="share of exact zeros in the same"),
    *_rows("attention_entropy/*", "nats",
           own="of a layer's attention, mean over samples, heads and queries: 0 to ln of the keys seen"),
    *_rows("*loss", UNKNOWN_UNIT, "down", own="a loss"),
    *_rows("*perplexity", "", "down", own="`exp` of a loss"),
    *_rows("*_accuracy", "fraction", "up", own="share of samples that are classified right"),
    *_rows("*_seconds sec_per_* *sec_per_step", "s", "down", "machine", own="a time"),
    *_rows("*_per_sec *_per_second", "1/s", "up", "machine", own="a rate"),
    *_rows("*_mb", "MB", "down", "machine", own="memory"),
    *_rows("*_gb", "GB", "down", "machine", own="memory"),
    *_rows("*_mem_*", UNKNOWN_UNIT, "down", "machine", own="memory"),
    *_rows("*_watts", "W", kind="machine", own="power"),
    *_rows("*_joules", "J", "down", "machine", own="energy"),
    *_rows("*_celsius", "°C", kind="machine", own="a temperature"),
    *_rows("*_utilization", UNKNOWN_UNIT, "up", "machine", own="how busy a part of the machine was"),
    *_rows("*_path", kind="machine", own="where a file lies"),
    *_rows("*seconds *joules *memory *cost", UNKNOWN_UNIT, "down", own="what a result is bought with"),
)  # fmt: skip


@cache
def row_of(name: str) -> FieldRow:
    """The row of a field of a record that measures, or of a number of reports; else the first family's.

    A field without a row has an unknown unit and stands nowhere.
    """
    named = _measured().get(name)
    if named is not None:
        return named
    families = (row for pattern, row in _families() if pattern.fullmatch(name))
    return next(families, FieldRow(name, UNKNOWN_UNIT, {}))


def rows_at(place: str) -> Iterator[FieldRow]:
    """The rows of an event, or of another place, in the order of the docs."""
    return (row for row in FIELDS if place in row.about)


def is_result(name: str) -> bool:
    """Whether a field is equal bit for bit when a training is reproduced; also one without a row."""
    return row_of(name).kind == "result"


@cache
def prometheus_rows() -> Mapping[str, FieldRow]:
    """Metric in Prometheus -> its row."""
    return {row.prometheus: row for row in FIELDS if row.prometheus}


@cache
def _measured() -> Mapping[str, FieldRow]:
    return {row.name: row for row in FIELDS if not MEASURED.isdisjoint(row.about)}


@cache
def _families() -> list[tuple[re.Pattern[str], FieldRow]]:
    return [(_expression(row.name), row) for row in FIELDS if OWN in row.about or "N" in row.name]


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace("N", r"\d+"))
