"""What a recipe says: the model, the data, how it is trained, and on what mesh of processes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ropewalk.amounts import Amount
from ropewalk.data.config import AnyData, TextData
from ropewalk.distributed.world import MeshConfig
from ropewalk.models.config import TransformerConfig
from ropewalk.overrides import refusal
from ropewalk.settings import Settings
from ropewalk.train.guard.faults import FaultConfig
from ropewalk.train.optim import AdamW, AnyOptimizer
from ropewalk.train.schedule import AnySchedule, Cosine, InverseSqrt

Share = Annotated[float, Field(ge=0, lt=1)]
Steps = Annotated[int, Field(gt=0)]


class EvaluateConfig(Settings):
    every: Steps | None = None
    """Steps; unless given ten times in a run, and always at its end."""
    tokens: Amount = 100_000
    """Of the validation sequences, padding included; all of them where they are fewer."""


class SaveConfig(Settings):
    every: Steps | None = None
    """Steps; unless given ten times in a run, and always at its end."""
    keep: int = Field(default=2, ge=2)
    """How many of the newest checkpoints are kept."""
    keep_every: Steps | None = None
    """Steps; a checkpoint is saved at each multiple of it too, and stays for good."""
    asynchronous: bool = True
    """Written while the training goes on."""


class SampleConfig(Settings):
    prompts: tuple[str, ...] = Field(min_length=1)
    """Texts to continue, or to translate; for an encoder, texts with mask tokens to fill in."""
    tokens: Annotated[int, Field(gt=0)] | None = None
    """New ones for each prompt at most; unless given 32."""
    every: Steps | None = None
    """Steps; unless given as often as the validation loss, and always at the end of the run."""


class TrainConfig(Settings):
    start: str | None = None
    """A checkpoint to start from: a model directory, a .gguf file or a run; on the command line --from SRC."""
    tokens: Amount | None = None
    """To train on, padding included, however often the data is read; or `steps`."""
    steps: Amount | None = None
    batch: Amount = 32_768
    """Tokens of one update, padding included, over all ranks and passes."""
    micro: Amount | None = None
    """Tokens of one pass on one rank; the batch is as many passes as it takes. Unless given, one."""
    optimizer: AnyOptimizer = AdamW()
    schedule: AnySchedule = Cosine()
    clip: float | None = Field(default=1.0, gt=0)
    """Maximum norm of the gradient; null: no clipping."""
    label_smoothing: Share = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: matrix products; weights, sums and losses stay float32."""
    compile: bool = False
    recompute: bool = False
    """Activations of a block are computed again in the backward pass instead of kept."""
    deterministic: bool = False
    """Only algorithms that give the same bits every time, also on a GPU; slower, and an error where there is none."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    evaluate: EvaluateConfig = EvaluateConfig()
    samples: SampleConfig | None = None
    """Prompts that the model continues during training; null: none."""
    save: SaveConfig = SaveConfig()
    track: str | None = None
    """Where records go besides metrics.jsonl: trackio, wandb, or my_pkg.module:make."""
    faults: FaultConfig = FaultConfig()

    alternatives: ClassVar = (("tokens", "steps"),)

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.tokens is None) == (self.steps is None):
            given = "neither is" if self.tokens is None else "both are"
            says = f"says how long to train, or `steps` does; {given} given. Write tokens: 20M, or steps: 1000"
            raise refusal(("tokens", self.tokens, says))
        return self

    def peak(self, width: int) -> float:
        """The learning rate at its highest."""
        if self.optimizer.lr is not None:
            return self.optimizer.lr
        return (width * self.schedule.warmup) ** -0.5 if isinstance(self.schedule, InverseSqrt) else 1e-3


class Recipe(Settings):
    """One run, in sections."""

    model: TransformerConfig = Field(default_factory=TransformerConfig)
    data: AnyData = Field(default_factory=lambda: TextData(path="data/long-english"))
    train: TrainConfig = Field(default_factory=lambda: TrainConfig(steps=1000))
    mesh: MeshConfig = Field(default_factory=MeshConfig)


def schema() -> dict[str, Any]:
    """JSON Schema of a config file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}
