# Targets only: a recipe is one command, and the command is a file in scripts/. `make help` prints the
# comments behind the targets: those with `##*`, and with ALL=y the others too.

# Names given on make's command line, before anything else is read: what follows is this file's own, whatever
# else they name (`override`). `value` and a loop's `1`, for make would expand a $(...) in a name.
override given := $(strip $(foreach 1,$(value .VARIABLES),$(if $(filter command,$(firstword $(origin $1))),$1)) \
	$(if $(filter command,$(firstword $(origin 1))),1))

# They reach the scripts as environment variables, letter for letter: make would expand a $(...) in their values,
# so each is frozen first; no recipe mentions one, so no shell sees it. Nor are paths of the environment expanded.
$(foreach 1,$(given),$(eval override $$1 := $$(value $$1))$(eval export $$1))
$(foreach 1,PYTHON VENV PYTHONPATH,$(if $(filter environment,$(firstword $(origin $1))),\
	$(eval override $$1 := $$(value $$1))))
override export KHARNESS_MAKE_VARS := $(given)
override .DEFAULT_GOAL := train
override export KHARNESS_GOALS := $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))

.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# The Python that makes the environment, and the environment. A PYTHON of another version than that of
# .venv has an environment of its own, .venv-3.13. `make PYTHON=/path/to/python VENV=` uses a Python that
# already has everything, such as one with a CUDA or ROCm build of torch.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV ?= .venv

# These two are part of commands, so they must be plain paths.
override shell_characters := ; & | < > ( ) * ? " ' ` \ $$ \#
$(foreach 1,PYTHON VENV,$(if $(or $(word 2,$($1)),$(strip $(foreach 2,$(shell_characters),$(findstring $2,$($1))))),\
	$(error $1 must be one path without spaces or shell characters, not: $($1))))

ifneq ($(origin PYTHON),file)
ifeq ($(origin VENV),file)
override VENV := $(or $(shell $(PYTHON) -IS scripts/environment.py folder),$(error PYTHON=$(PYTHON) does not run))
endif
endif

ifeq ($(strip $(VENV)),)
override python := $(PYTHON) -m kharness.quiet
override setup := verify-environment
override setup_tests := verify-environment
override export PYTHONPATH := $(CURDIR)/lib$(if $(PYTHONPATH),:$(PYTHONPATH))
else
override python := $(VENV)/bin/python -m kharness.quiet
override setup := $(VENV)/.ready
override setup_tests := $(VENV)/.ready-for-tests
endif

override presets := $(sort $(notdir $(wildcard defconfigs/* */defconfigs/*)))
override config_targets := menuconfig oldconfig olddefconfig defconfig savedefconfig list-defconfigs \
	listnewconfig helpnewconfig allyesconfig allnoconfig alldefconfig randconfig mergeconfig \
	configwhy configdiff

# Where torch is not installed yet, a call that needs a part of the environment gets that part, in seconds.
ifeq ($(filter verify-environment,$(setup))$(wildcard $(setup)),)
ifeq ($(filter-out $(config_targets) defconfig-%,$(KHARNESS_GOALS)),)
override setup := $(VENV)/.ready-config
else ifeq ($(filter-out gputop watch,$(KHARNESS_GOALS)),)
override setup := $(VENV)/.ready-dashboard
endif
endif

# Every target comes after this one, which refuses what none of the call's targets reads or takes, and before
# a set-up what is not there.
.PHONY: variables
variables:
ifneq ($(given)$(-*-command-variables-*-)$(filter defconfig-%,$(KHARNESS_GOALS))$(if $(wildcard $(setup)),,$(setup)),)
	@PYTHONPATH=lib $(PYTHON) -S -m kharness.quiet scripts/check_make_call.py
endif

# No target of this name: the script says the nearest ones; `tests` is a folder.
.PHONY: tests
tests: variables
.DEFAULT tests:
	@PYTHONPATH=lib $(PYTHON) -S -m kharness.quiet scripts/check_make_call.py

##@ Training

.PHONY: train
train: $(setup)			##* train what .config says (plain `make` does this)
	@$(python) scripts/train.py

.PHONY: test_matrix
test_matrix: $(setup)		##* train every cell of MATRIX_AXES, compare them, draw the graphs
	@$(python) scripts/test_matrix.py

.PHONY: test_matrix_dry_run
test_matrix_dry_run: $(setup)	##* print what test_matrix would run, and for how long
	@$(python) scripts/test_matrix_dry_run.py

.PHONY: sweep
sweep: $(setup)			## train over ranges of hyperparameters, with a leaderboard: RANGE_CONFIG=file
	@$(python) scripts/sweep.py

.PHONY: continue
continue: $(setup)		##* finish what was interrupted, or add seeds: RUN=dir (default: the newest) CONFIG_SEED=1..10 FILTER=… JOBS=n
	@$(python) scripts/continue.py

.PHONY: test_rerun
test_rerun: $(setup)		## run cells again from scratch: TARGET=dir FILTER=… (default: those that failed)
	@$(python) scripts/test_rerun.py

.PHONY: status
status: $(setup)		##* report how far a matrix or a run is: RUN=dir (default: the newest)
	@$(python) scripts/status.py

.PHONY: control
control: $(setup)		## ask a running training for something: RUN=dir CHECKPOINT=1 EVALUATE=1 STOP=1 LR_FACTOR=x LOG_EVERY=n PROFILE=n
	@$(python) scripts/control.py

.PHONY: inspect-batch
inspect-batch: $(setup)		## show the samples of one step of a run, with the loss of each: RUN=dir STEP=n
	@$(python) scripts/inspect_batch.py

.PHONY: estimate
estimate: $(setup)		## estimate how long a running or interrupted matrix still takes: RUN=dir JOBS=n
	@$(python) scripts/estimate.py

.PHONY: logs
logs: $(setup)			##* print what a run printed: CELL=name RUN=dir FOLLOW=y
	@$(python) scripts/logs.py

.PHONY: report
report: $(setup)		##* write graphs, tables and pages of a run or matrix: RUN=dir (default: the newest) PAPER=y, or of two: A= B=
	@$(python) scripts/report.py

.PHONY: summary
summary: $(setup)		## write the summary again from run directories: RUN=dir (default: the newest)
	@$(python) scripts/summary.py

.PHONY: graphs
graphs: $(setup)		## draw the graphs again from run directories: RUN=dir (default: the newest)
	@$(python) scripts/graphs.py

.PHONY: gpu-report
gpu-report: $(setup)		## report how evenly the GPUs were used, and draw it: RUN=dir (default: the newest)
	@$(python) scripts/gpu_report.py

.PHONY: reproduce
reproduce: $(setup)		## train a past run again and say whether it is bit-equal: RUN=dir (default: the newest) ANYWAY=y
	@$(python) scripts/reproduce.py

.PHONY: compare
compare: $(setup)		##* say which of two runs, matrices or variants is better: A=dir B=dir[:SYMBOL=value …]
	@$(python) scripts/compare.py

.PHONY: check-model
check-model: $(setup)		## check the configured model by one step: memory, FLOPs, expected time; keeps nothing
	@$(python) scripts/check_model.py

.PHONY: data
data: $(setup)			##* fetch, prepare and verify the datasets of the model in DATA_DIR
	@$(python) scripts/data.py

##@ Configuration (O=dir TRACKER=none|trackio|wandb|both GPU_MONITOR=y CONFIG_X=value)

.PHONY: $(config_targets) $(addprefix defconfig-,$(presets))
menuconfig: $(setup)		##* choose options in a menu
oldconfig: $(setup)		## ask about options that .config does not hold yet
olddefconfig: $(setup)		## give options that .config does not hold yet their defaults
defconfig: $(setup)		##* write .config from a preset: DEFCONFIG=name|path (default: default)
savedefconfig: $(setup)		## write the shortest preset that gives this .config to ./defconfig
list-defconfigs: $(setup)	##* list the presets: what each is and what it needs
listnewconfig: $(setup)		## list options that .config does not hold yet
helpnewconfig: $(setup)		## the same with their help
allyesconfig: $(setup)		## write .config with every yes/no option on
allnoconfig: $(setup)		## write .config with every yes/no option off
alldefconfig: $(setup)		## write .config with every default
randconfig: $(setup)		## write a random .config: SEED=n gives the same again
mergeconfig: $(setup)		## lay fragments over .config: FRAGMENTS="a b"
configwhy: $(setup)		## print an option's value, where it comes from and what it depends on: SYMBOL=X
configdiff: $(setup)		## compare two configs or run directories: A= B=

$(config_targets):
	@$(python) scripts/kconfig.py $@

# defconfig-<name>: $(setup)	## the same as DEFCONFIG=name; the shell completes it
defconfig-%: export KHARNESS_PRESET = $*
$(addprefix defconfig-,$(presets)): defconfig-%: $(setup)
	@$(python) scripts/kconfig.py defconfig

# A name that is no preset: the script names the nearest ones.
defconfig-%: $(setup) FORCE
	@$(python) scripts/kconfig.py defconfig

##@ Experiment tracking

.PHONY: trackio-view
trackio-view: $(setup)		## open Trackio's dashboard for the configured project and port
	@$(python) scripts/trackio_view.py

.PHONY: trackio-test
trackio-test: $(setup)		## send made-up metrics to Trackio and read them back
	@$(python) scripts/tracker_test.py trackio

.PHONY: wandb-test
wandb-test: $(setup)		## send made-up metrics to W&B (offline without a login) and read them back
	@$(python) scripts/tracker_test.py wandb

.PHONY: sync
sync: $(setup)			## bring a run's trackers up to date: RUN=dir (default: the newest) TRACKER=name
	@$(python) scripts/sync.py

.PHONY: prometheus
prometheus: $(setup)		## show all runs to Prometheus on one port: RUN=dir (default: RESULTS_DIR)
	@$(python) scripts/prometheus.py

.PHONY: dashboard
dashboard: $(setup)		##* every run in a browser, live: RUN=dir[:dir …] (default: RESULTS_DIR) PORT=n HOST=address READ_ONLY=y SAVE=file.html VIEW=address
	@$(python) scripts/dashboard.py

.PHONY: gputop
gputop: $(setup)		##* GPUs and a run, live in this terminal: RUN=dir (default: the newest) METRIC=… THEME=… SORT=… SIMULATE=n
	@$(python) scripts/gputop.py

.PHONY: watch
watch: $(setup)			## make gputop, where there is no GPU: a run, live in this terminal: RUN=dir METRIC=name
	@$(python) scripts/gputop.py

##@ Working on kharness

.PHONY: new-model
new-model: $(setup)		## write the smallest model outside of this tree that trains: M=dir
	@$(python) scripts/new_model.py

.PHONY: check
check: $(setup_tests)		## lint, types and tests, as CI runs them; with M=dir the tests of that model
	@$(python) scripts/check.py

.PHONY: quick
quick: $(setup_tests)		## lint, types and tests of what a change touches, within a minute
	@$(python) scripts/quick.py

.PHONY: check-newest
check-newest: $(setup_tests)	## test the trackers with the newest releases of W&B and Trackio
	@$(python) scripts/check_newest.py

.PHONY: release-check
release-check: $(setup_tests)	## say whether a tag could be cut: version, changelog, archives that install and work
	@$(python) scripts/release_check.py

.PHONY: bench
bench: $(setup_tests)		## time kharness beside the alternatives: ONLY=name for one
	@$(python) scripts/bench.py

.PHONY: docs
docs: $(setup) docs-fields	## generate docs/options.md from the Kconfig help, and what docs-fields does
	@$(python) scripts/options_doc.py

.PHONY: docs-images
docs-images: $(setup_tests)	## record the first run for README.md and docs/quickstart.md: train, kill, continue
	@$(python) scripts/docs_images.py

.PHONY: docs-fields
docs-fields: $(setup)		## generate the tables of fields in docs/ from their rows
	@$(python) scripts/metrics_doc.py

.PHONY: requirements
requirements: $(setup_tests)	## pin requirements/*.txt again from requirements/*.in: KEEP=y keeps what still fits
	@$(python) scripts/requirements.py

##@ Cleaning

.PHONY: clean mrproper distclean
clean: variables		## remove caches; configuration and results stay
mrproper: variables		## also remove .config and what was generated from it
distclean: variables		## also remove .venv and its kind; results and data always stay

clean mrproper distclean:
	@$(PYTHON) -S scripts/clean.py $@

.PHONY: help
help: variables			## list the targets of every day, ALL=y all
	@$(PYTHON) -S scripts/make_help.py Makefile

# The environment. A stamp is written last, so an interrupted set-up is taken up again.
override locks := $(basename $(notdir $(wildcard requirements/*.txt)))
override torch_named := $(if $(filter TORCH TORCH_INDEX,$(given)),FORCE)
# One whose folder was renamed, moved or copied names another place than its own.
override made := $(file <$(VENV)/pyvenv.cfg)
override moved := $(if $(findstring --without-pip,$(made)),$(if \
	$(findstring --without-pip $(if $(filter /%,$(VENV)),,$(CURDIR)/)$(VENV),$(made)),,FORCE))
override part = PYTHONPATH=lib $(PYTHON) scripts/environment.py create $@

# Another build of torch is another environment: TORCH=auto|cpu|cuda, TORCH_INDEX=url.
$(VENV)/.ready: requirements/run.txt requirements/torch.txt pyproject.toml $(torch_named) $(moved) | variables
	@$(part) run

$(VENV)/.ready-for-tests: $(wildcard requirements/*.txt) pyproject.toml | variables $(VENV)/.ready
	@$(part) $(filter-out config cuda dashboard run torch,$(locks))

$(VENV)/.ready-config: requirements/config.txt $(moved) | variables
	@$(part) config

$(VENV)/.ready-dashboard: requirements/dashboard.txt $(moved) | variables
	@$(part) dashboard

.PHONY: verify-environment
verify-environment: variables
	@$(PYTHON) scripts/environment.py verify

.PHONY: FORCE
FORCE:
