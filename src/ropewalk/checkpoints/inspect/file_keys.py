"""Keys for config.json itself: of transformers 4 and 5, and of MLX-LM, which has no option for them."""

from __future__ import annotations

from ropewalk.checkpoints.engines import mlx, transformers4, transformers5
from ropewalk.checkpoints.inspect.changes import Config
from ropewalk.checkpoints.inspect.pasted import Override, as_json, checked
from ropewalk.scaling import LongRoPE


def of_transformers(config: Config) -> tuple[Override, ...]:
    if isinstance(config.wanted.scaling, LongRoPE):
        return (Override(engine="transformers", why="nothing to change: it switches to the long list by itself"),)
    old, new = config.old(), config.new()
    answers = {"5": checked(config, old, transformers5), "4": checked(config, old, transformers4)}
    if not config.facts.new and all(why is None for why, _ in answers.values()):
        _, notes = answers["5"]
        return (Override(engine="transformers 4 and 5", into=config.into, text=as_json(old), notes=notes),)
    answers["5"] = checked(config, new, transformers5)
    found = []
    for version, changes in (("5", new), ("4", old)):
        why, notes = answers[version]
        into, text = (None, None) if why is not None else (config.into, as_json(changes))
        found.append(Override(engine=f"transformers {version}", into=into, text=text, why=why, notes=notes))
    if found[0].why is not None and found[0].why == found[1].why:
        return (Override(engine="transformers 4 and 5", why=found[0].why),)
    return tuple(found)


def of_mlx(config: Config) -> Override:
    """Its files read rope_scaling, or rope_parameters, or neither."""
    if isinstance(config.wanted.scaling, LongRoPE):
        why = config.wanted.short_of(mlx.read(config.facts.resolved))
        return Override(engine=mlx.ENGINE, why=why or "nothing to change: it uses the long list for every text")
    found = []
    both = (config.new(), config.old()) if config.facts.new else (config.old(), config.new())
    for changes in both:
        why, notes = checked(config, changes, mlx)
        if why is None:
            return Override(engine=mlx.ENGINE, into=config.into, text=as_json(changes), notes=notes)
        found.append(why)
    return Override(engine=mlx.ENGINE, why=found[0])
