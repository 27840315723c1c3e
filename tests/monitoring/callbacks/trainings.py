"""Small scripts in each framework's own style, one function a case; each writes down what the framework logs.

A program is run as `program.py CASE…`, by one process or by each of several.
"""

from __future__ import annotations

COMMON = """
import json, os, sys, torch

LOGGED = []


def note(case, step, values):
    LOGGED.append({"case": case, "step": step, "values": {name: value for name, value in values.items()}})


def main(cases, is_first):
    for name in sys.argv[1:]:
        torch.manual_seed(0)
        cases[name]()
    if is_first():
        with open("logged.json", "w") as file:
            json.dump(LOGGED, file)
"""

HUGGING_FACE = (
    COMMON
    + """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from monitoring.callbacks import RunCallback

tokens = torch.randint(0, 100, (16, 8), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in tokens]
config = GPT2Config(vocab_size=100, n_positions=8, n_embd=8, n_layer=1, n_head=1)


def new_model():
    return GPT2LMHeadModel(config)


class Spy(TrainerCallback):
    def __init__(self, case):
        self.case = case

    def on_log(self, args, state, control, logs=None, **_):
        note(self.case, state.global_step, logs)

    def on_predict(self, args, state, control, metrics=None, **_):
        note(self.case, state.global_step, metrics)


def trainer(case, steps=2, run=None, callbacks=(), kind=Trainer, model_init=None, **arguments):
    run = run or RunCallback(case, agent=False)
    more = {"logging_steps": 1, "save_strategy": "no", "per_device_train_batch_size": 2, **arguments}
    if "RANK" in os.environ:
        more["ddp_backend"] = "gloo"
    given = TrainingArguments(output_dir=f"out/{case}", max_steps=steps, report_to=[], use_cpu=True, **more)
    model = {"model_init": model_init} if model_init else {"model": new_model()}
    callbacks = [run, Spy(case), *callbacks]
    return kind(**model, args=given, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks)


class Raise(TrainerCallback):
    def __init__(self, error):
        self.error = error

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            raise self.error


def one():
    trainer("one").train()


def twice():
    made = trainer("twice")
    made.train()
    made.train()


def trainers():
    trainer("trainers").train()
    trainer("trainers").train()


def shared():
    run = RunCallback("shared", agent=False)
    trainer("shared", run=run).train()
    trainer("shared", run=run).train()


def resumed():
    kept = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 4}
    trainer("resumed", steps=3, **kept).train()
    again = trainer("resumed", steps=4, **kept)
    again.train(resume_from_checkpoint="out/resumed/checkpoint-2")


def alone():
    trainer("alone").evaluate()


def before():
    made = trainer("before")
    made.evaluate()
    made.train()


def after():
    made = trainer("after")
    made.train()
    made.evaluate()


def caught():
    made = trainer("caught", steps=4, callbacks=[Raise(RuntimeError("the disk of somebody else"))])
    try:
        made.train()
    except RuntimeError:
        made.evaluate()


def stopped():
    try:
        trainer("stopped", steps=4, callbacks=[Raise(KeyboardInterrupt())]).train()
    except KeyboardInterrupt:
        pass


class Kill(TrainerCallback):
    def on_log(self, args, state, control, **_):
        if state.global_step == 3:
            os.kill(os.getpid(), 9)


KEPT = {"save_strategy": "steps", "save_steps": 2}


def killed():
    trainer("killed", steps=4, callbacks=[Kill()], **KEPT).train()


def continued():
    trainer("killed", steps=4, **KEPT).train(resume_from_checkpoint=True)


def failed():
    trainer("failed", steps=4, callbacks=[Raise(RuntimeError("the disk of somebody else"))]).train()


class Talkative(Trainer):
    def compute_loss(self, *given, **named):
        self.log({"loss_scale": 8.0, "train_loss": 3.25, "eval_share": 0.125, "test_share": 0.75})
        self.log({"eval_only": 0.375})
        return super().compute_loss(*given, **named)


def everything():
    made = trainer("everything", kind=Talkative, include_num_input_tokens_seen=True)
    made.train()
    made.evaluate(metric_key_prefix="extra")
    made.evaluate({"first": data[:2], "second": data[2:4]})
    made.predict(data[:4])
    made.predict(data[:4], metric_key_prefix="holdout")


def search():
    made = trainer("search", model_init=new_model)
    space = lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-3)}
    made.hyperparameter_search(hp_space=space, n_trials=2, backend="optuna", direction="minimize")


def pruned():
    import optuna

    class Second(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 1

    made = trainer("pruned", model_init=new_model, eval_strategy="steps", eval_steps=1, eval_on_start=False)
    space = lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-3)}
    made.hyperparameter_search(
        hp_space=space, n_trials=2, backend="optuna", direction="minimize", pruner=Second()
    )


def smaller():
    class TooLarge(Trainer):
        def training_step(self, model, inputs, *given):
            if len(inputs["input_ids"]) > 2:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(model, inputs, *given)

    trainer("smaller", kind=TooLarge, auto_find_batch_size=True, per_device_train_batch_size=4).train()


main(globals(), lambda: int(os.environ.get("RANK", 0)) == 0)
"""
)

ACCELERATE = (
    COMMON
    + """
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from monitoring.callbacks import AccelerateTracker


class Spy(GeneralTracker):
    name = "spy"
    requires_logging_directory = False
    tracker = None

    def __init__(self, case):
        super().__init__()
        self.case = case

    def log(self, values, step=None, **_):
        note(self.case, step, values)


class Training:
    def __init__(self, case, tracker=None):
        self.case = case
        self.tracker = tracker or AccelerateTracker(case, agent=False)
        self.accelerator = Accelerator(cpu=True, log_with=[self.tracker, Spy(case)])
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

    def begin(self):
        self.accelerator.init_trackers("examples", config={"lr": 0.05})

    def train(self, first, last, save_at=None):
        for step in range(first, last + 1):
            inputs = torch.randn(4, 4, generator=torch.Generator().manual_seed(step))
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.accelerator.log({"train_loss": loss.item(), "lr": 0.05}, step=step)
            if step == save_at:
                self.accelerator.save_state(f"out/{self.case}")

    def evaluate(self, step=None):
        self.accelerator.log({"val/loss": 0.5}, step=step)

    def end(self):
        # as accelerator.end_training, which would also take the processes of the next case apart
        for tracker in self.accelerator.trackers:
            tracker.finish()


def one():
    made = Training("one")
    made.begin()
    made.train(1, 2)
    made.end()


def twice():
    tracker = AccelerateTracker("twice", agent=False)
    for _ in range(2):
        made = Training("twice", tracker)
        made.begin()
        made.train(1, 2)
        made.end()


def trainers():
    for _ in range(2):
        made = Training("trainers")
        made.begin()
        made.train(1, 2)
        made.end()


def shared():
    tracker = AccelerateTracker("shared", agent=False)
    for _ in range(2):  # without an end
        made = Training("shared", tracker)
        made.begin()
        made.train(1, 2)


def resumed():
    made = Training("resumed")
    made.begin()
    made.train(1, 3, save_at=2)
    made.end()
    made = Training("resumed")
    made.begin()
    made.accelerator.load_state("out/resumed")
    made.train(3, 4)
    made.end()


def killed():
    made = Training("killed")
    made.begin()
    made.train(1, 3, save_at=2)
    os.kill(os.getpid(), 9)


def continued():
    made = Training("killed")
    made.begin()
    made.accelerator.load_state("out/killed")
    made.train(3, 4)
    made.end()


def failed():
    made = Training("failed")
    made.begin()
    made.train(1, 2)
    raise RuntimeError("the disk of somebody else")


def loaded_before():
    made = Training("loaded_before")
    made.begin()
    made.train(0, 2, save_at=0)  # counted from 0, by epochs, as complete_nlp_example.py does
    made.end()
    made = Training("loaded_before")
    made.accelerator.load_state("out/loaded_before")
    made.begin()
    made.train(1, 2)
    made.end()


def alone():
    made = Training("alone")
    made.begin()
    made.evaluate(0)
    made.end()


def before():
    made = Training("before")
    made.begin()
    made.evaluate(0)
    made.train(1, 2)
    made.end()


def after():
    made = Training("after")
    made.begin()
    made.train(1, 2)
    made.evaluate(2)
    made.end()


def caught():
    made = Training("caught")
    made.begin()
    try:
        made.train(1, 2)
        raise RuntimeError("the disk of somebody else")
    except RuntimeError:
        made.evaluate(2)
    made.end()


def text():
    # two parts a step, and an evaluation after the second step, before that is logged
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 1))
    tracker = AccelerateTracker("text", agent=False, model=model)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=[tracker, Spy("text")])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.init_trackers("examples", config={})
    tokens = torch.zeros(3, 5, dtype=torch.int64)
    for part in range(1, 7):
        with accelerator.accumulate(model):
            loss = model(tokens).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if part == 4:
            model.eval()
            with torch.no_grad():
                model(tokens)
            accelerator.log({"val/loss": 0.5}, step=part // 2)
            model.train()
        if part % 2 == 0:
            accelerator.log({"train_loss": loss.item()}, step=part // 2)
    tracker.finish()


def everything():
    made = Training("everything")
    made.begin()
    names = "loss train_loss learning_rate lr grad_norm val_loss eval_loss split step".split()
    values = {name: float(number) for number, name in enumerate(names)}
    others = {"valid/loss": 21.0, "test/bleu": 22.0, "global_step": 23.0, "event": 24.0}
    made.accelerator.log({**values, **others})
    made.accelerator.log({"eval_only": 25.0, "epoch": 3})
    made.accelerator.log({"epoch": 4})
    made.accelerator.log({"train/nested": {"a": 26.0}, 27: 28.0}, step=7)
    made.end()


main(globals(), lambda: int(os.environ.get("RANK", 0)) == 0)
"""
)

LIGHTNING = (
    COMMON
    + """
import lightning
from lightning.pytorch.loggers import Logger
from monitoring.callbacks import LightningLogger, LightningRun

DEVICES = int(os.environ.get("DEVICES", 1))


class Sum(lightning.LightningModule):
    error = None

    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def loss(self, batch):
        return (self.layer(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()

    def training_step(self, batch, index):
        if self.error is not None and self.global_step == 2:
            raise self.error
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, index):
        self.log("test_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Spy(Logger):
    name = version = "spy"

    def __init__(self, case):
        super().__init__()
        self.case = case

    def log_metrics(self, metrics, step=None):
        note(self.case, step, metrics)

    def log_hyperparams(self, *_, **__):
        pass


inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs), batch_size=4)


def trainer(case, steps=2, logger=None, callbacks=(), **arguments):
    logger = logger or LightningLogger(case, agent=False)
    more = {"enable_checkpointing": False, "limit_val_batches": 2, "log_every_n_steps": 1, **arguments}
    return lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=DEVICES, logger=[logger, Spy(case)],
        callbacks=[*callbacks], enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=f"out/{case}", **more,
    )


def one():
    trainer("one").fit(Sum(), data)


def twice():
    logger = LightningLogger("twice", agent=False)
    for _ in range(2):
        trainer("twice", logger=logger, callbacks=[LightningRun(logger)]).fit(Sum(), data)


def trainers():
    trainer("trainers").fit(Sum(), data)
    trainer("trainers").fit(Sum(), data)


def shared():
    logger = LightningLogger("shared", agent=False)
    trainer("shared", logger=logger).fit(Sum(), data)
    trainer("shared", logger=logger).fit(Sum(), data)


def saving(case):
    often = {"every_n_train_steps": 2, "save_top_k": -1}
    every = lightning.pytorch.callbacks.ModelCheckpoint(f"out/{case}", **often)
    return {"callbacks": [every], "enable_checkpointing": True}


def resumed():
    trainer("resumed", 3, **saving("resumed")).fit(Sum(), data)
    trainer("resumed", 4, **saving("resumed")).fit(Sum(), data, ckpt_path="out/resumed/epoch=0-step=2.ckpt")


class Killed(Sum):
    def on_train_batch_start(self, batch, index):
        if self.global_step == 3:
            os.kill(os.getpid(), 9)


def killed():
    trainer("killed", 4, **saving("killed")).fit(Killed(), data)


def continued():
    trainer("killed", 4, **saving("killed")).fit(Sum(), data, ckpt_path="out/killed/epoch=0-step=2.ckpt")


def failed():
    module = Sum()
    module.error = RuntimeError("the disk of somebody else")
    trainer("failed", 4).fit(module, data)


def longer():
    made = trainer("longer", 2)
    module = Sum()
    made.fit(module, data)
    made.fit_loop.epoch_loop.max_steps = 4
    made.fit(module, data)


def alone():
    trainer("alone").validate(Sum(), data)


def before():
    made, module = trainer("before"), Sum()
    made.validate(module, data)
    made.fit(module, data)


def after():
    made, module = trainer("after"), Sum()
    made.fit(module, data)
    made.validate(module, data)


def caught():
    made, module = trainer("caught", 4), Sum()
    module.error = RuntimeError("the disk of somebody else")
    try:
        made.fit(module, data)
    except RuntimeError:
        trainer("caught", logger=made.loggers[0]).validate(module, data)


class Talkative(Sum):
    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log_dict({"train_loss": loss, "loss": loss + 1, "grad_norm": loss + 2, "eval_share": loss + 3})
        self.log("epoch_mean", loss, on_step=True, on_epoch=True)
        self.logger.log_metrics({"by_hand": 4.5}, step=self.global_step)
        self.trainer.loggers[1].log_metrics({"by_hand": 4.5}, step=self.global_step)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch), on_step=True, on_epoch=True)
        self.log("step", torch.tensor(float(self.current_epoch)))


def everything():
    made, module = trainer("everything", 4, limit_train_batches=2), Talkative()
    made.fit(module, data, data)
    made.test(module, data, verbose=False)


main(globals(), lambda: int(os.environ.get("LOCAL_RANK", 0)) == 0)
"""
)

PROGRAMS = {"hugging_face": HUGGING_FACE, "accelerate": ACCELERATE, "lightning": LIGHTNING}
