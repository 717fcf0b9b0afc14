"""What a study says: a recipe, the arms that change it, how often each is trained, and what is measured.

    recipe: {model: {width: 64, layers: 2, heads: 4}, train: {steps: 300, batch: 2048}}
    reference: rope
    arms:
      rope: rope                                          an encoding's name
      own: my_pkg.cable                                   or one outside the package
      learned: {model: {encoding: {kind: learned, longest: 256}}, differs: [parameters]}
    text: {recipe: {data: {kind: text, path: data/books, length: 256}}, lengths: [256, 512, 4096]}
    tasks: {recipe: {data: {kind: tasks, of: [copy], longest: 20}}, lengths: [10, 20, 40]}

An arm is any difference of the recipe. The text and the tasks are trained apart, each by the recipe with its changes.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ropewalk.data.config import Length
from ropewalk.overrides import load, read, refusal
from ropewalk.settings import Settings

Changes = dict[str, Any]
Seeds = Annotated[int, Field(ge=1, le=1000)]
Factor = Annotated[float, Field(gt=0)]
FLOOR_SEEDS = 5
"""Seeds of the reference from which the noise floor is taken, at least."""


class Arm(Settings):
    """One model of the comparison: what it changes in the recipe."""

    model: Changes = Field(default_factory=dict)
    data: Changes = Field(default_factory=dict)
    train: Changes = Field(default_factory=dict)
    differs: tuple[Literal["parameters", "data"], ...] = ()
    """In what it may differ from the reference besides: the number of parameters, the data and its order."""

    @staticmethod
    def shorthand(encoding: str) -> Changes:
        return {"model": {"encoding": encoding}}

    @field_validator("train")
    @classmethod
    def _same_seeds(cls, train: Changes) -> Changes:
        if "seed" in train:
            raise ValueError(
                f"has seed: {train['seed']}, and every arm is trained with the seeds 0, 1, 2, ...; leave it out, and "
                "write how many with text.seeds or tasks.seeds"
            )
        return train


class Until(Settings):
    """Seeds are added to arms until the interval of their difference from the reference is narrow enough."""

    half_width: float = Field(gt=0)
    """Nats per token of the same tokens, at the trained length: of the interval that the verdict is about."""
    seeds: Seeds = 10
    """Of each arm at most."""


class Part(Settings):
    recipe: Changes = Field(default_factory=dict)
    """What this part changes in the study's recipe, its data above all."""
    arms: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Those that are trained here; null: all. The reference is always among them."""
    reference_seeds: Annotated[int, Field(ge=FLOOR_SEEDS, le=1000)] | None = FLOOR_SEEDS
    """The reference is trained so often at least, for the noise floor; null: as often as the others, and without a
    floor no verdict is given."""


class TextPart(Part):
    """Language modelling, measured past the trained length."""

    seeds: Seeds = 3
    until: Until | None = None
    lengths: tuple[Length, ...] = Field(min_length=1)
    """Tokens of context to measure with; the trained length is always among them."""
    tail: int = Field(default=64, ge=8)
    """Last tokens of each piece of text, the same for every length."""
    documents: int = Field(default=16, ge=2)
    """Pieces of validation text, each as long as the longest length."""


class TaskPart(Part):
    """Synthetic tasks, measured by exact match at lengths in training and past it."""

    seeds: Seeds = 5
    lengths: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Symbols of the questions to measure with."""
    samples: int = Field(default=100, ge=1)
    """Questions of each task and length."""


class Rates(Settings):
    """Each arm's own learning rate, searched for with one seed and a part of the budget."""

    factors: tuple[Factor, ...] = Field(default=(0.5, 1.0, 2.0), min_length=1)
    """Of the recipe's rate; where there is one, it is taken without a search."""
    share: float = Field(default=0.25, gt=0, le=1)
    """Of the training, for each point of the search."""
    shared_seeds: Seeds = 1
    """Seeds trained at the recipe's rate where an arm's own is another: both rankings are kept."""


class Study(Settings):
    """A comparison, fixed before it is run."""

    recipe: Changes | str = Field(default_factory=dict)
    """What all arms share: the sections of a recipe, a file beside the study, or the name of one of ours."""
    arms: dict[str, Arm] = Field(min_length=2)
    reference: str
    """The arm that the others are compared with."""
    text: TextPart | None = None
    tasks: TaskPart | None = None
    rates: Rates | None = Rates()
    """null: every arm has the recipe's learning rate, and the report says so."""
    threads: int = Field(default=1, ge=1)
    """Of each trial; the numbers do not depend on how many trials run at once."""
    budget: float | None = Field(default=None, gt=0)
    """Hours of all trials together, after which no trial is begun; null: as many as it takes."""

    @field_validator("arms", mode="before")
    @classmethod
    def _named(cls, arms: Any) -> Any:
        if not isinstance(arms, dict):
            return arms
        return {
            str(name): Arm.shorthand(arm) if isinstance(arm, str) else {} if arm is None else arm
            for name, arm in arms.items()
        }

    @model_validator(mode="after")
    def _complete(self) -> Self:
        faults: list[tuple[str, Any, str]] = []
        if self.reference not in self.arms:
            says = f"is no arm; there are {', '.join(self.arms)}"
            faults.append(("reference", self.reference, f"{self.reference} {says}"))
        if self.text is None and self.tasks is None:
            faults.append(("text", None, "nothing is measured; write text: {lengths: [...]}, tasks: {...}, or both"))
        for name, part in self.parts.items():
            unknown = [arm for arm in part.arms or () if arm not in self.arms]
            if unknown:
                faults.append((name, part.arms, f"names {', '.join(unknown)}; the arms are {', '.join(self.arms)}"))
        if faults:
            raise refusal(*faults)
        return self

    @property
    def parts(self) -> dict[str, TextPart | TaskPart]:
        found: dict[str, TextPart | TaskPart | None] = {"text": self.text, "tasks": self.tasks}
        return {name: part for name, part in found.items() if part is not None}

    def arms_of(self, part: str) -> list[str]:
        """The reference first."""
        wanted = self.parts[part].arms
        others = [name for name in self.arms if name != self.reference and (wanted is None or name in wanted)]
        return [self.reference, *others]


def load_study(path: str | Path, changes: list[str] | None = None) -> Study:
    """A study file, with its recipe read where it names one."""

    def adapt(data: dict[str, Any]) -> dict[str, Any]:
        named = data.get("recipe")
        return {**data, "recipe": read(_recipe(named, Path(path)))} if isinstance(named, str) else data

    return load(Study, path, changes or [], adapt=adapt)


def _recipe(named: str, study: Path) -> Path:
    ours = Path(str(files("ropewalk") / "recipes" / f"{named}.yaml"))
    return ours if ours.is_file() and not (study.parent / named).is_file() else study.parent / named
