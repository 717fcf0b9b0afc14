"""Runs inside vLLM's own environment, started by vllm.py: `python -I vllm_child.py`. It imports nothing of ropewalk.

The first line of standard input has the arguments of `vllm.LLM`; each further one has the tokens of a text and how many
of the last are scored. Each line is answered by one on standard output; an empty input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what vLLM prints does not stand among the answers

    def answer(said: dict[str, Any]) -> None:
        print(json.dumps(said), file=answers, flush=True)

    arguments = json.loads(sys.stdin.readline())
    vllm: Any = import_module("vllm")

    engine = vllm.LLM(**arguments)
    answer({"version": vllm.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        answer({"nats": nats(vllm, engine, asked["tokens"], asked["scored"])})


def nats(vllm: Any, engine: Any, tokens: list[int], scored: int) -> list[float]:
    # The last token is not part of the prompt but the only one allowed after it: so the text needs no room of its own
    # for an answer. The log-probability is that before the restriction.
    settings = vllm.SamplingParams(
        max_tokens=1, temperature=0.0, prompt_logprobs=0, logprobs=0, allowed_token_ids=tokens[-1:], detokenize=False
    )
    found = engine.generate([{"prompt_token_ids": tokens[:-1]}], settings, use_tqdm=False)[0]
    listed = [*found.prompt_logprobs, found.outputs[0].logprobs[0]]
    return [-listed[place][tokens[place]].logprob for place in range(len(tokens) - scored, len(tokens))]


if __name__ == "__main__":  # vLLM may start processes that import this file
    main()
