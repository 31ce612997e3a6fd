"""The training loop.

A run is a function of its configuration: the order of the batches and the learning rate depend only on the step, and a
checkpoint holds the rest. So a run that was killed at any moment and resumed with the same number of threads ends with
the same bits; on a GPU, as far as its operations are deterministic.
"""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regmax.experiments import tasks
from regmax.experiments.config import Config
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tasks import Task
from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.distributed import World
from regmax.experiments.training.progress import Reporter
from regmax.experiments.training.schedule import rate
from regmax.files import write_atomically
from regmax.nn import AnnealGamma, GrowLam


@dataclass
class State:
    """The state of a run, except its tensors."""

    step: int = 0
    best: float = float("-inf")
    waited: int = 0  # epochs since the best one
    seconds: float = 0.0  # of training, without evaluations
    epoch_loss: float = 0.0  # summed over the steps of the epoch
    epoch_seconds: float = 0.0
    epoch_words: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    gamma: dict[str, Any] | None = None  # of the annealing
    lam: dict[str, Any] | None = None  # of the growth
    fingerprint: str = ""
    processes: int = 1


class Trainer:
    """A run in its folder, starting from its last checkpoint, if there is one."""

    def __init__(self, config: Config, folder: Path, world: World) -> None:
        self.config, self.folder, self.world = config, folder, world
        self.task: Task = tasks.build(config, world.device)
        self.steps_per_epoch = len(self.task.epoch(0))
        self.steps = config.epochs * self.steps_per_epoch
        self.optimizer = _optimizer(config, self.task.model)
        self.annealing = _annealing(config, self.task.model, self.steps)
        self.growth = _growth(config, self.task.model, self.steps)
        self.state = State(fingerprint=self.task.fingerprint(), processes=world.size)
        torch.manual_seed(config.seed + world.rank)  # different dropout in each process
        if (folder / runs.LAST).exists():
            self._resume()
        elif world.first:
            self.task.save(folder)
        self.model = world.wrap(self.task.model)

    def run(self) -> None:
        """Train until the last epoch, or until the dev score has not risen for `patience` epochs."""
        config = self.config
        title = f"{config.task} {config.mapping} seed {config.seed}"
        board = self.folder / runs.TENSORBOARD if config.tensorboard else None
        quiet = not self.world.first
        with Reporter(title, self.steps, folder=board, start=self.state.step, quiet=quiet) as reporter:
            self.task.watch = reporter.watch
            while self.state.step < self.steps and not self._exhausted():
                self._epoch(reporter)

    def _epoch(self, reporter: Reporter) -> None:
        """Train the rest of the current epoch, and evaluate."""
        state = self.state
        epoch, done = divmod(state.step, self.steps_per_epoch)
        self.model.train()
        for rows in self.task.epoch(epoch)[done:]:
            began = time.perf_counter()
            loss = self._step(rows)
            state.epoch_seconds += time.perf_counter() - began
            state.epoch_words += self.task.words(rows)
            state.epoch_loss += loss
            state.step += 1
            if reporter.due(state.step):
                reporter.step(state.step, loss, state.epoch_words / state.epoch_seconds)
            if state.step % self.config.save_every == 0 and state.step % self.steps_per_epoch:
                self._save()
        self._finish_epoch(epoch + 1, reporter)

    def _step(self, rows: list[int]) -> float:
        """One optimizer step on a batch, of which this process has some rows; returns the batch's loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.config, self.state.step, self.steps_per_epoch)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model, self.world.share(rows), rows)
        (loss * self.world.size).backward()  # type: ignore[no-untyped-call]  # DDP takes the mean of the gradients
        total = self.world.total(loss)
        if not total < float("inf"):
            raise ExperimentError(f"The loss is {total} at step {self.state.step}: try a smaller `rate`.")
        nn.utils.clip_grad_norm_(self.task.model.parameters(), self.config.clip)
        self.optimizer.step()
        for schedule in (self.annealing, self.growth):
            if schedule is not None:
                schedule.step()
        return total

    def _finish_epoch(self, epoch: int, reporter: Reporter) -> None:
        state = self.state
        scores = self.world.from_first(self.task.develop() if self.world.first else None)
        record = {
            "epoch": epoch,
            "step": state.step,
            "train loss": state.epoch_loss / self.steps_per_epoch,
            **{f"dev {name}": value for name, value in scores.items()},
            "seconds": state.epoch_seconds,
            "words per second": state.epoch_words / state.epoch_seconds,
        }
        state.history.append(record)
        state.seconds += state.epoch_seconds
        state.epoch_loss, state.epoch_seconds, state.epoch_words = 0.0, 0.0, 0
        reporter.epoch(state.step, epoch, {k: v for k, v in record.items() if k not in ("epoch", "step")})
        self._judge(scores["accuracy"])
        self._save()

    def _judge(self, score: float) -> None:
        """Keep the best model at the final gamma and lam: with other strengths it has another mapping."""
        if any(schedule and not schedule.finished for schedule in (self.annealing, self.growth)):
            return
        self.state.waited += 1
        if score > self.state.best:
            self.state.best, self.state.waited = score, 0
            if self.world.first:
                tensors = checkpoints.model_tensors(self.task.model)
                checkpoints.write(self.folder / runs.BEST, tensors, {"step": self.state.step, "score": score})

    def _exhausted(self) -> bool:
        return 0 < self.config.patience <= self.state.waited

    def _save(self) -> None:
        random_states = {f"random.cpu.{i}": t for i, t in enumerate(self.world.gather(torch.get_rng_state()))}
        if self.world.device.type == "cuda":
            own = torch.cuda.get_rng_state(self.world.device)
            random_states |= {f"random.cuda.{i}": t for i, t in enumerate(self.world.gather(own))}
        if not self.world.first:
            return
        self.state.gamma = None if self.annealing is None else self.annealing.state_dict()
        self.state.lam = None if self.growth is None else self.growth.state_dict()
        tensors = {
            **checkpoints.model_tensors(self.task.model),
            **checkpoints.optimizer_tensors(self.optimizer),
            **random_states,
        }
        checkpoints.write(self.folder / runs.LAST, tensors, dataclasses.asdict(self.state))
        history = json.dumps(self.state.history, indent=1) + "\n"
        write_atomically(self.folder / runs.HISTORY, history)

    def _resume(self) -> None:
        path = self.folder / runs.LAST
        tensors, saved = checkpoints.read(path)
        try:
            state = State(**saved)
        except TypeError as error:
            raise ExperimentError(f"{path} is damaged: its state is not that of a run.") from error
        if state.fingerprint != self.state.fingerprint:
            raise ExperimentError(f"{path} was trained on other data: the training files have changed.")
        if state.processes != self.world.size:
            raise ExperimentError(f"{path} comes from {state.processes} process(es). Got {self.world.size}.")
        checkpoints.load_model(self.task.model, tensors, path)
        checkpoints.load_optimizer(self.optimizer, tensors)
        if self.annealing is not None and state.gamma is not None:
            self.annealing.load_state_dict(state.gamma)
        if self.growth is not None and state.lam is not None:
            self.growth.load_state_dict(state.lam)
        self.state = state
        self._restore_random(tensors)

    def _restore_random(self, tensors: dict[str, Tensor]) -> None:
        torch.set_rng_state(tensors[f"random.cpu.{self.world.rank}"])
        if self.world.device.type == "cuda":
            torch.cuda.set_rng_state(tensors[f"random.cuda.{self.world.rank}"], self.world.device)


def _optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kind = torch.optim.SGD if config.optimizer == "sgd" else torch.optim.Adam
    # Fused: one pass over the parameters, mostly word vectors, takes a fifth of the time of several passes.
    return kind(parameters, lr=config.rate, weight_decay=config.weight_decay, fused=True)


def _annealing(config: Config, model: nn.Module, steps: int) -> AnnealGamma | None:
    if not config.anneal_from:
        return None
    begin, end = int(config.anneal_begin * steps), int(config.anneal_end * steps)
    return AnnealGamma(
        model, start=config.anneal_from, end=config.gamma, steps=max(end - begin, 1), delay=begin
    )


def _growth(config: Config, model: nn.Module, steps: int) -> GrowLam | None:
    if not config.grow_end:
        return None
    begin, end = int(config.grow_begin * steps), int(config.grow_end * steps)
    return GrowLam(model, steps=max(end - begin, 1), delay=begin)
