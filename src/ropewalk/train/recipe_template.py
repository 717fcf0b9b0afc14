"""What `ropewalk init recipe` writes: a run of under a minute, and the comments that say how to make it another."""

from __future__ import annotations

TEXT = """\
# A decoder that learns to copy, in under a minute on a CPU and without data. Change it into yours:
#   ropewalk train {file}                          into runs/{name}
#   ropewalk train {file} model.encoding=alibi     one change, from the command line
#   ropewalk config show {file}                    every key with its value
#   ropewalk list encodings                            what `encoding` can be
model:
  stack: decoder            # or encoder (masked tokens), encoder-decoder (translation)
  width: 64
  layers: 2
  heads: 4
  encoding: {{kind: rope, base: 10000}}
# Text of your own: ropewalk data prepare FILES... --out data/mine, then {{kind: text, path: data/mine, length: 1024}}
data: {{kind: task, task: copy, length: 64}}
train:
  steps: 200                # or tokens: 20M
  batch: 2048               # tokens of one update
  optimizer: {{kind: adamw, lr: 3e-3}}
  schedule: {{kind: wsd, warmup: 20}}
"""
