"""What the references claim to be: small, so that the whole museum is seen in a minute."""

from __future__ import annotations

from ropewalk.conformance.target import Heat, Spec
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, Proportional, YaRN

DIVIDED = LongRoPE(short=(1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7), long=(1, 1.5, 2, 3, 4, 6, 7, 8), trained=64, factor=4)

PLAIN = {
    "rope": Spec(head_width=16, heads=4),
    "pairs": Spec(head_width=16, heads=4, layout="pairs"),
    "partial": Spec(head_width=16, heads=4, rotary_width=8),
    "window": Spec(head_width=16, heads=4, window=5),
    "linear": Spec(head_width=16, heads=4, scaling=Linear(factor=4)),
    "yarn": Spec(head_width=32, heads=4, scaling=YaRN(factor=8, trained=2048)),
    "yarn_smooth": Spec(head_width=32, heads=4, scaling=YaRN(factor=8, trained=2048, truncate=False)),
    "yarn_given": Spec(head_width=32, heads=4, scaling=YaRN(factor=8, trained=2048, attention_factor=1.1)),
    "yarn_long": Spec(head_width=32, heads=4, scaling=YaRN(factor=8, trained=131_072)),
    "deepseek": Spec(
        head_width=32,
        heads=4,
        scaling=YaRN(factor=8, trained=2048, dialect="deepseek", mscale=0.7, mscale_all_dim=0.7),
    ),
    "llama3": Spec(head_width=32, heads=4, base=500_000, scaling=Llama3(factor=8, trained=8192)),
    "dynamic": Spec(head_width=16, heads=4, scaling=Dynamic(factor=2, trained=64), longest=4096),
    "longrope": Spec(head_width=16, heads=4, scaling=DIVIDED, longest=256),
    "longrope_at_its_end": Spec(head_width=16, heads=4, scaling=DIVIDED, longest=64),
    "table": Spec(head_width=16, heads=4, longest=512),
    "proportional": Spec(head_width=16, heads=4, scaling=Proportional(fraction=0.5, factor=2)),
    "axes": Spec(head_width=16, heads=4, sections=(2, 3, 3)),
    "axes_interleaved": Spec(head_width=16, heads=4, sections=(4, 2, 2), arrangement="interleaved"),
    "axes_axial": Spec(head_width=16, heads=4, sections=(4, 4), arrangement="axial"),
    "axes_pairs": Spec(head_width=16, heads=4, rotary_width=8, layout="pairs", sections=(2, 1, 1)),
    "axes_yarn": Spec(head_width=32, heads=4, sections=(4, 6, 6), scaling=YaRN(factor=8, trained=2048)),
    "temperature": Spec(head_width=16, heads=4, temperature=Heat(form="llama4", trained=32)),
    "indexer": Spec(head_width=16, heads=4, rotary_width=8, layout="pairs", indexer=Spec(head_width=16, heads=4)),
    "alibi": Spec(kind="alibi", head_width=16, heads=6),
    "t5": Spec(kind="t5", head_width=16, heads=4),
    "t5_both_ways": Spec(kind="t5", head_width=16, heads=4, bidirectional=True),
}

SPECS = {name: spec.model_copy(update={"angles": "exact"}) for name, spec in PLAIN.items()}
"""All claim exact angles: a mutant that is only as good as float32 is not what it claims to be."""
