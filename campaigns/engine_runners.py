"""Runs one engine on one small model and writes the log-probabilities it gives; for campaigns/engines.py.

    python engine_runners.py ENGINE JOB.json ANSWER.json
                                    ENGINE: transformers, llama.cpp, vllm, "vllm lengths", rotations, masks

A job is {"path", "texts": [{"tokens", "limit"}]}; an answer is one list for each text, the log-probability of every
token after it. `rotations` and `masks` are of transformers, and take {"configs"}. Stands alone, since vLLM and older
transformers live in environments of their own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 320


def transformers(job: dict[str, Any]) -> list[list[float]]:
    """Each text by a model of its own, unless the job says that one model reads them all, one after another."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    answers, model = [], None
    for text in job["texts"]:
        if model is None or not job.get("one_model"):
            model = AutoModelForCausalLM.from_pretrained(job["path"], attn_implementation="eager").eval().float()
        with torch.no_grad():
            logits = model(torch.tensor([text["tokens"]]), use_cache=False).logits[0, -1]
        answers.append(logits.double().log_softmax(-1).tolist())
    return answers


def llama_cpp(job: dict[str, Any]) -> list[list[float]]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = job["path"]
    params.n_ctx, params.n_parallel, params.n_gpu_layers = job["context"], 1, 0
    params.warmup = params.fit_params = params.cache_prompt = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    answers = []
    for text in job["texts"]:
        asked = {"prompt": text["tokens"], "max_tokens": 1, "logprobs": VOCABULARY, "temperature": 1.0, "top_k": 0}
        for seed in range(50):
            found = server.handle_completions(
                {**asked, "top_p": 1.0, "min_p": 0.0, "cache_prompt": False, "seed": seed}
            )
            found = found if isinstance(found, dict) else json.loads(found)
            # A drawn token that ends the text, or that is no text by itself, comes back without its alternatives.
            if (listed := found["choices"][0]["logprobs"]) is not None:
                break
        alternatives = listed["content"][0]["top_logprobs"]
        answers.append(_in_order({one["id"]: one["logprob"] for one in alternatives}))
    return answers


def vllm(job: dict[str, Any]) -> list[list[float]]:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    from vllm import LLM, SamplingParams

    answers: list[list[float]] = []
    engine, limit = None, 0
    for text in job["texts"]:
        if engine is None or limit != text["limit"]:
            del engine
            engine, limit = (
                LLM(
                    model=job["path"],
                    skip_tokenizer_init=True,
                    dtype="float32",
                    enforce_eager=True,
                    max_model_len=text["limit"],
                    max_logprobs=-1,
                    max_num_seqs=1,
                ),
                text["limit"],
            )
        sampling = SamplingParams(max_tokens=1, temperature=0.0, logprobs=VOCABULARY, detokenize=False)
        found = engine.generate([{"prompt_token_ids": text["tokens"]}], sampling, use_tqdm=False)
        listed = found[0].outputs[0].logprobs[0]
        answers.append(_in_order({token: one.logprob for token, one in listed.items()}))
    return answers


def vllm_lengths(job: dict[str, Any]) -> list[int]:
    """The max_model_len of each path, where none is asked for."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR"}
    from vllm.config import ModelConfig

    return [ModelConfig(model=path, skip_tokenizer_init=True, dtype="float32").max_model_len for path in job["paths"]]


def rotations(job: dict[str, Any]) -> list[dict[str, tuple[list[float], float]] | str]:
    """For each config, frequencies and gain of its full and of its sliding layers; the error where it is refused."""
    import tempfile

    import torch
    from transformers import AutoConfig, AutoModel, logging

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    answers: list[dict[str, tuple[list[float], float]] | str] = []
    for config in job["configs"]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(config))
            try:
                model = AutoModel.from_config(AutoConfig.from_pretrained(folder))
            except Exception as error:  # whatever it says, this version does not read the config
                answers.append(f"{type(error).__name__}: {error}"[:200])
                continue
        found: dict[str, tuple[list[float], float]] = {}
        for name, module in model.named_modules():
            for key, buffer in module.named_buffers(recurse=False):
                if key.endswith("inv_freq") and "original" not in key:
                    gain = getattr(module, key.replace("inv_freq", "attention_scaling"), 1.0)
                    place = "sliding" if "sliding" in f"{name}.{key}" or "local" in name else "full"
                    found[place] = (buffer.tolist(), float(gain))
        answers.append(found)
    return answers


def masks(job: dict[str, Any]) -> list[list[tuple[int, int, bool]] | str]:
    """For each config and layer: how many tokens a query sees before itself and after, and whether the layer rotates.

    Every layer is given the same input, so that its attention weights tell of itself alone.
    """
    import torch
    from transformers import AutoConfig, AutoModel, logging

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    count = job["tokens"]
    answers: list[list[tuple[int, int, bool]] | str] = []
    for config in job["configs"]:
        try:
            model = AutoModel.from_config(AutoConfig.for_model(**config), attn_implementation="eager").eval()
        except (ValueError, KeyError) as error:
            answers.append(f"{type(error).__name__}: {error}"[:100])
            continue
        for part in model.modules():
            if isinstance(part, torch.nn.ModuleList) and len(part) == config["num_hidden_layers"]:
                for layer in part:
                    layer.register_forward_pre_hook(_same_input(count, config["hidden_size"]), with_kwargs=True)
        tokens = torch.arange(count)[None] % 50 + 3
        told = []
        for step in (1, 2):
            places = {"attention_mask": torch.ones_like(tokens), "position_ids": torch.arange(count)[None] * step}
            with torch.no_grad():
                told.append(model(tokens, **places, output_attentions=True).attentions)
        middle = count // 2
        layers = []
        for one, other in zip(*told, strict=True):
            seen = (one[0].sum(0)[middle] > 0).nonzero().flatten().tolist()
            layers.append((middle - seen[0], seen[-1] - middle, not torch.allclose(one, other, atol=1e-6)))
        answers.append(layers)
    return answers


def _same_input(count: int, width: int) -> Any:
    import torch

    fixed = torch.randn(1, count, width, generator=torch.Generator().manual_seed(3))

    def hook(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        return ((fixed, *given[1:]), named) if given else (given, {**named, "hidden_states": fixed})

    return hook


def _in_order(found: dict[int, float]) -> list[float]:
    if len(found) < VOCABULARY:
        raise ValueError(f"{len(found)} of {VOCABULARY} log-probabilities came back")
    return [found[token] for token in range(VOCABULARY)]


if __name__ == "__main__":
    engine, job, answer = sys.argv[1:]
    runners: dict[str, Any] = {
        "transformers": transformers,
        "llama.cpp": llama_cpp,
        "vllm": vllm,
        "vllm lengths": vllm_lengths,
        "rotations": rotations,
        "masks": masks,
    }
    run = runners[engine]
    Path(answer).write_text(json.dumps(run(json.loads(Path(job).read_text()))))
