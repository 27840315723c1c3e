#!/bin/sh
# What to run first on a machine with GPUs, in a checkout that `make` has set up:
#
#     scripts/gpu_first_run.sh                  # all steps, some minutes each
#     scripts/gpu_first_run.sh machine bits     # some of machine, sampler, tests, waits, bits, pace, matrix
#     DEVICE=cpu scripts/gpu_first_run.sh bits  # where there is no GPU
#
# It prints what it finds and exits 1 if a step did not hold. Runs go to OUT (default: a new folder below /tmp).
set -u
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${DEVICE:-cuda}
EPOCHS=${EPOCHS:-4}
STEPS="machine sampler tests waits bits pace matrix"
failed=

if ! "$PYTHON" -c '' 2>/dev/null; then
	echo "error: $PYTHON does not run" >&2
	echo "hint: run make first, or set PYTHON" >&2
	exit 2
fi
for step in "$@"; do
	case " $STEPS " in
	*" $step "*) ;;
	*)
		echo "error: unknown step $step" >&2
		echo "hint: one of $STEPS" >&2
		exit 2
		;;
	esac
done
OUT=${OUT:-$(mktemp -d "${TMPDIR:-/tmp}/gpu_first_run.XXXXXX")}
mkdir -p "$OUT" || exit 2

# Becomes a training of LeNet-5 in OUT/$1 with further flags; its output is beside it.
start() {
	name=$1
	shift
	mkdir -p "$OUT/$name"
	[ -e "$OUT/$name/.config" ] || cp defconfigs/default "$OUT/$name/.config"
	exec "$PYTHON" lenet5/train.py --device "$DEVICE" --num-epochs "$EPOCHS" --tracker none "$@" \
		--run-dir "$OUT/$name" >>"$OUT/$name.out" 2>&1
}

train() {
	(start "$@")
}

# The bits of the last checkpoint of OUT/$1: model and optimiser.
bits() {
	"$PYTHON" - "$OUT/$1/metrics.jsonl" <<-'END'
		import json, sys
		records = [json.loads(line) for line in open(sys.argv[1])]
		last = [record for record in records if record["event"] == "checkpoint"][-1]
		print(last["global_step"], last["model_sha256"][:16], last["optimizer_sha256"][:16])
	END
}

# Which GPUs, driver and versions.
machine() {
	if [ "$DEVICE" = cuda ]; then
		nvidia-smi || return 1
	fi
	"$PYTHON" - "$DEVICE" <<-'END'
		import sys, torch
		print("torch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())
		if sys.argv[1] == "cuda":
		    for index in range(torch.cuda.device_count()):
		        print(index, torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index))
		    sys.exit(not torch.cuda.is_available())
	END
}

# Every GPU sampled six times; a crash of the driver's library is named.
sampler() {
	"$PYTHON" -X faulthandler -m monitoring.gpu_monitor --gpu all --interval 0.2 --samples 6 --log-dir "$OUT/gpu_logs"
}

# Every test that needs a GPU; it says why it skipped one.
tests() {
	"$PYTHON" -m pytest -q -n 0 -m gpu -rs tests
}

# A thousand steps with a record each, every watcher on, of which none waits for the GPU.
waits() {
	(
		EPOCHS=12
		start waits --cuda-sync-check --gpu-monitor --machine-monitor --include-performance-metrics \
			--include-timer-metrics --use-verbose-logging --verbosity-level ultra
	) || return 1
	"$PYTHON" - "$OUT/waits/metrics.jsonl" "$DEVICE" <<-'END'
		import json, sys
		events = [json.loads(line)["event"] for line in open(sys.argv[1])]
		print(events.count("step"), "steps on", sys.argv[2] + ", none of which waited")
		sys.exit(events.count("step") < 1000)
	END
}

# The same seed twice, and a third time killed after its first checkpoint and resumed: the same bits.
bits_are_equal() {
	train once --deterministic || return 1
	train again --deterministic || return 1
	start resumed --deterministic &
	trainer=$!
	until ls "$OUT/resumed/checkpoints/"*.pt >/dev/null 2>&1; do
		kill -0 $trainer 2>/dev/null || break
		sleep 0.1
	done
	kill -9 $trainer 2>/dev/null && echo "resumed: killed after a checkpoint"
	wait $trainer 2>/dev/null
	train resumed --deterministic || return 1
	for run in once again resumed; do
		echo "$run: $(bits $run)"
	done
	[ "$(bits once)" = "$(bits again)" ] && [ "$(bits once)" = "$(bits resumed)" ]
}

# Samples a second and the phases of a step, with a record each step and each 50th, GPUs sampled or not.
pace() {
	for every in 1 50; do
		for sampled in no-gpu-monitor gpu-monitor; do
			run="pace-$every-$sampled"
			train "$run" --log-every $every --$sampled || return 1
			"$PYTHON" - "$OUT/$run/metrics.jsonl" "$run" <<-'END'
				import json, statistics, sys
				records = [json.loads(line) for line in open(sys.argv[1])]
				steps = [record for record in records if record["event"] == "step"]
				names = ("samples_per_sec", "data_seconds", "forward_backward_seconds", "optimizer_seconds")
				found = {name: [step[name] for step in steps if step.get(name) is not None] for name in names}
				print(sys.argv[2], {name: statistics.median(found[name]) for name in names if found[name]})
			END
		done
	done
}

# A small matrix with energy, and how evenly the GPUs were used.
matrix() {
	make test_matrix PYTHON="$PYTHON" VENV= CONFIG_DEVICE="$DEVICE" TRACKER=none GPU_MONITOR=y \
		CONFIG_NUM_EPOCHS="$EPOCHS" CONFIG_RESULTS_DIR="$OUT/matrix"
}

for step in ${@:-$STEPS}; do
	echo
	echo "== $step"
	run=$step
	[ "$step" = bits ] && run=bits_are_equal
	if ! $run; then
		echo "error: $step did not hold; runs and their output are in $OUT" >&2
		failed="$failed $step"
	fi
done
echo
if [ -n "$failed" ]; then
	echo "did not hold:$failed"
	exit 1
fi
echo "all steps held; runs are in $OUT"
