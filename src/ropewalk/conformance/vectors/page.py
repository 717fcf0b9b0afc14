"""The page that is written beside golden vectors: what every array means, and the byte it starts at."""

from __future__ import annotations

import json
from typing import Any

from ropewalk.conformance.spec import VERSION

HEAD = """# Golden vectors for position code

Version {version}. Written by `ropewalk verify --vectors`; nothing here needs ropewalk to be read.

- `vectors.safetensors`: every array, {count} of them, {size:,} bytes. Little-endian, row-major (the last index runs
  fastest), each starting at a multiple of its item's size.
- `vectors.json`: the settings of every case; frequencies and gains as decimals of 60 digits, which is more than a
  float64 holds. At position 2^40 a frequency rounded to float64 is already off by 6e-5 rad.
- `read_vectors.py`: a reader that needs numpy and the standard library. `python read_vectors.py` lists the arrays.

All real numbers were worked out from the published equations in decimals of 80 digits and rounded once: each float64
is the one nearest to the truth. Inputs are multiples of 1/64 in [-2, 2), exact in bfloat16, float16 and float32.
What to allow: an implementation in float32 that keeps its positions whole is within 2.5e-7 rad of every angle to 2^36
and 1e-6 rad at 2^40, and within 1e-6 of the rotated vectors, times the gain.

## Words

`K` width of a head, `R` how many of its features turn, `omega_i` the frequency of pair `i` in rad per position,
`i < R/2`, fastest first. Layout `half` pairs feature `i` with `i + R/2`; layout `pairs` pairs `2i` with `2i + 1`.
A pair `(a, b)` at position `p` becomes `(a c - b s, b c + a s)`, `c = gain cos(p omega_i)`, `s = gain sin(p omega_i)`.
Features from `R` on stay as they are, without the gain. A case is a base, a width and a scaling; vectors.json has
their settings by name.

## Arrays

| name | shape, dtype | meaning |
|---|---|---|
| `positions` | (P) int64 | the positions of all cos, sin and rotated arrays, ascending |
| `input/K` | (K) float64 | the vector of one head that is rotated |
| `frequencies/CASE` | (R/2) float64 | `omega_i` |
| `gains/CASE` | (2) float64 | the rotary gain, on cos and sin; the logit gain, on every score |
| `cos/CASE`, `sin/CASE` | (P, R/2) float64 | of `p omega_i`, times the rotary gain |
| `rotated/LAYOUT/CASE` | (P, K) float64 | `input/K` at every position |
| `sinusoidal/LAYOUT/D` | (P, D) float64 | \
the vector of each position, base 10,000: `pairs` sin, cos, sin, cos, ... as published; `half` sines, then cosines |
| `attention/NAME/q`, `k` | (H, 3, K), (H, 10, K) float64 | queries and keys before any rotation |
| `attention/NAME/q_positions`, `k_positions` | (3), (10) int64 | where they are |
| `attention/NAME/logits` | (H, 3, 10) float64 | \
`q'.k' / sqrt(K)` times the logit gain, then ALiBi's bias; before the mask |
| `attention/NAME/visible` | (3, 10) uint8 | 1 where `0 <= q_position - k_position < window` (no window: only `0 <=`) |
| `attention/NAME/probabilities` | (H, 3, 10) float64 | the softmax of the visible logits, 0 elsewhere |
| `alibi/slopes` | (128, 128) float64 | \
row `n - 1`: the slopes of `n` heads, then zeros. The bias is `-slope * distance`, with this float64 as the slope |
| `t5/distances` | (D) int64 | key position - query position |
| `t5/one_way/N_F`, `t5/two_way/N_F` | (D) int32 | \
the bucket of each distance; N buckets, farthest distance F; two_way: bidirectional |

Inputs can be made without the file: `s <- (1103515245 s + 12345) mod 2^31`, then `((s >> 16) mod 256 - 128) / 64`.
`input/K` starts from `s = K`; all of `q`, row-major, from `s = 1`, all of `k` from `s = 2`.

## Without a JSON parser

The table gives the byte of `vectors.safetensors` that each array starts at, so that C needs no more than this:

```c
#include <stdio.h>

double cosines[15 * 32];                       /* cos/yarn, (15, 32) */
FILE *file = fopen("vectors.safetensors", "rb");
fseek(file, {cos_yarn}, SEEK_SET);
fread(cosines, sizeof(double), 15 * 32, file); /* position 5 of pair 3: cosines[5 * 32 + 3] */
```

| name | dtype | shape | first byte | bytes |
|---|---|---|---|---|
"""

NAMES = {"F64": "float64", "I64": "int64", "I32": "int32", "U8": "uint8"}


def places(packed: bytes) -> dict[str, dict[str, Any]]:
    """Of every array its dtype, shape, first byte in the file and size in bytes."""
    start = 8 + int.from_bytes(packed[:8], "little")
    found = {}
    for name, entry in sorted(json.loads(packed[8:start]).items()):
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = {
                "dtype": NAMES[entry["dtype"]],
                "shape": tuple(entry["shape"]),
                "first": start + begin,
                "bytes": end - begin,
            }
    return found


def page(packed: bytes) -> str:
    """README.md for the bytes of a safetensors file."""
    known = places(packed)
    head = HEAD
    for word, value in (
        ("{version}", VERSION),
        ("{count}", str(len(known))),
        ("{size:,}", f"{len(packed):,}"),
        ("{cos_yarn}", str(known["cos/yarn"]["first"])),
    ):
        head = head.replace(word, value)
    rows = []
    for name, entry in known.items():
        shape = ", ".join(map(str, entry["shape"]))
        rows.append(f"| `{name}` | {entry['dtype']} | ({shape}) | {entry['first']} | {entry['bytes']} |")
    return head + "\n".join(rows) + "\n"
