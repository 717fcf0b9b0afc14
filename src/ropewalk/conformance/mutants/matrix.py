"""The kill matrix: every mutant, and every reference, run against every requirement; and the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ropewalk.conformance.checks import every
from ropewalk.conformance.mutants import MUTANTS, SPECS, Mutant, Reference
from ropewalk.conformance.mutants.alone import BLAMELESS
from ropewalk.conformance.run import Report, verify
from ropewalk.conformance.spec import PAGES, requirements

APART = ("C32",)
"""Requirements that have no bound, and so kill nothing."""


STATUSES = ("failed", "passed", "not applicable")

OWN = {
    "N01": "aidotnet_2074_positions_from_one",
    "N03": "megatron_lm_535_queries_in_uint32",
    "N04": "gpt_neox_1016_narrow_queries_narrow_positions",
    "N05": "foundation_model_stack_527_weights_after_rotation",
    "N06": "deepspeed_4932_gain_in_the_default_dtype",
    "N07": "litgpt_2202_inverted_ramp",
    "N08": "sglang_33558_gain_squared",
    "N09": "tensorrt_model_connect_667_alibi_in_bfloat16",
    "N10": "candle_3568_gradient_cut",
    "C01": "llama_cpp_13260_pairs_for_halves",
    "C02": "mlx_lm_1698_rest_has_the_gain",
    "C03": "transformers_45902_buffer_never_filled",
    "C04": "automodel_2549_guarded_from_casts_not_from_checkpoints",
    "C05": "tensorrt_llm_16378_rotated_twice",
    "C07": "aiter_4742_factor_one_has_a_gain",
    "C08": "rotary_torch_11_table_by_its_length",
    "C09": "unsloth_3699_first_row_of_the_table",
    "C10": "transformers_29109_one_row_for_a_batch",
    "C11": "flashinfer_1129_integers_of_another_width",
    "C12": "mlx_vlm_1983_one_token_alone",
    "C13": "executorch_21749_second_chunk",
    "C14": "veloxquant_389_offset_is_the_rows_kept",
    "C15": "transformers_33129_cache_thrown_away",
    "C16": "unsloth_3699_position_of_the_longest_row",
    "C17": "llamafactory_10737_padding_is_on_the_left",
    "C18": "nanovlm_204_documents_see_each_other",
    "C19": "flash_attention_517_triangle_of_another_shape",
    "C20": "vllm_3385_window_and_one_more",
    "C21": "megatron_5243_keys_counted_on",
    "C22": "megatron_deepspeed_227_slopes_of_the_first_rank",
    "C23": "mlx_3071_slopes_of_no_power_of_two",
    "C24": "attention_gym_86_alibi_sign",
    "C25": "candle_1312_buckets_past_the_last",
    "C26": "keras_hub_2977_one_query_alone",
    "C27": "sglang_38786_rows_appended_otherwise",
    "C29": "transformers_35716_graph_broken",
    "C30": "sparseml_1826_length_of_the_export",
    "C31": "x_transformers_182_values_rotated",
    "C33": "deepspeed_8345_theta_defaulted",
    "C34": "sglang_33117_one_table_for_all",
    "N12": "sglang_34446_one_row_of_three",
    "N13": "ferrox_213_temperature_dropped",
    "C35": "llama_cpp_19915_moved_on_one_axis",
    "C36": "mlx_vlm_1993_next_of_one_axis",
    "C37": "axolotl_3608_documents_ignored_in_pieces",
    "C38": "hipfire_391_chunks_by_slot",
    "C39": "unsloth_10681_long_list_for_the_trained_length",
    "C40": "sglang_13530_indexer_in_the_layout_of_the_layer",
}
"""Requirement to a mutant that it sees and no other requirement does."""


def of_mutant(mutant: Mutant, only: str | None = None) -> dict[str, Any]:
    report = verify(mutant.target, only=only)
    killed = [result.why or result.what for result in report.results if result.id == mutant.kills]
    told = {"kills": mutant.kills, "line": mutant.lines[1]}
    return {**told, **statuses(report), **({"said": killed[0]} if killed else {})}


def of_reference(name: str, only: str | None = None) -> dict[str, Any]:
    return statuses(verify(Reference(SPECS[name], name), only=only))


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what was run again in place of what it had; `kept` are the requirements that were not."""
    order = list(every())
    again = {one for status in STATUSES for one in new[status].split()}
    kept = {status: [one for one in old[status].split() if one not in again] for status in STATUSES}
    found = {status: " ".join(sorted([*kept[status], *new[status].split()], key=order.index)) for status in STATUSES}
    seconds = round(old["seconds"] + new["seconds"], 2)
    both = sorted((one for each in kept.values() for one in each), key=order.index)
    return {**old, **new, **found, "seconds": seconds, "kept": " ".join(both)}


def statuses(report: Report) -> dict[str, Any]:
    found = {status: " ".join(result.id for result in report.of(status)) for status in STATUSES}
    return {**found, "seconds": round(report.seconds, 2)}


def survivors(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Mutants that the check named for them does not see."""
    return [name for name, row in rows.items() if row["kills"] not in row["failed"].split()]


def own(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Of each requirement the mutant that it kills and no other does."""

    def alone(requirement: str) -> str | None:
        row = rows.get(OWN.get(requirement, ""))
        return OWN[requirement] if row and row["failed"] == requirement else None

    return {one: alone(one) for one in every() if one not in APART}


def blameless(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Of each requirement the mutant that it must not kill: one that is wrong elsewhere, and passes it."""

    def spared(requirement: str) -> str | None:
        row = rows.get(BLAMELESS.get(requirement, ""))
        return BLAMELESS[requirement] if row and row["failed"] and requirement in row["passed"].split() else None

    return {one: spared(one) for one in every() if one not in APART}


def empty(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Requirements with an empty cell in the table of both."""
    mine, spared = own(rows), blameless(rows)
    return [one for one in mine if None in (mine[one], spared[one])]


def idle(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Checks for which no mutant is named, or that do not see the one that is."""
    busy = {row["kills"] for row in rows.values() if row["kills"] in row["failed"].split()}
    return [name for name in every() if name not in busy and name not in APART]


def page(
    mutants: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]], language: str = "en"
) -> str:
    """mutants.md of docs/en or docs/zh."""
    words = texts()[language]
    failed = [name for name, row in references.items() if row["failed"]]
    without = idle(mutants)
    head = words["head"].format(
        filled=len(own(mutants)) - len(empty(mutants)),
        bounded=len(own(mutants)),
        killed=len(mutants) - len(survivors(mutants)),
        mutants=len(mutants),
        kinds=len({row["kills"] for row in mutants.values()}),
        idle=words["idle"].format(names=words["comma"].join(without)) if without else words["no_idle"],
        references=len(references),
        found=words["found"].format(names=words["comma"].join(failed)) if failed else words["nothing"],
    )
    lines = []
    for name, row in mutants.items():
        named = (
            link(row["kills"]) if row["kills"] in row["failed"].split() else words["survived"].format(id=row["kills"])
        )
        others = words["comma"].join(found for found in row["failed"].split() if found != row["kills"]) or "-"
        lines.append(f"| [{name}](#{name}) | {MUTANTS[name].of} | {named} | {others} |\n")
    exhibits = [exhibit(MUTANTS[name], row, language) for name, row in mutants.items()]
    parts = [
        head,
        *lines,
        words["table"],
        *table(mutants, language),
        *bugs(mutants, language),
        words["mutants"],
        *exhibits,
    ]
    whole = "".join(parts)
    return whole.rstrip() + "\n"


@cache
def texts() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("page.yaml").read_text(encoding="utf-8"))


def table(rows: Mapping[str, Mapping[str, Any]], language: str) -> list[str]:
    """Each requirement with a mutant that it alone kills, and one that it must not."""
    lines = []
    for requirement, name in own(rows).items():
        kills = sum(requirement in row["failed"].split() for row in rows.values())
        pair = name, blameless(rows)[requirement]
        cells = " | ".join(f"[{each}](#{each})" if each else texts()[language]["none"] for each in pair)
        title = requirements(language)[requirement].title
        lines.append(f"| [{requirement}]({anchor(requirement)}) {title} | {cells} | {kills} |\n")
    return lines


def named(threads: Sequence[str]) -> list[Mutant]:
    """The mutants of these threads."""
    return [mutant for mutant in MUTANTS.values() if {mutant.issue, *mutant.also} & set(threads)]


def bugs(rows: Mapping[str, Mapping[str, Any]], language: str) -> list[str]:
    """The table of public bugs: each with the requirements that kill its mutants."""
    words, found = texts()[language], {"seen": 0, "inspect": 0, "unseen": 0}
    lines = []
    for bug in texts()["bugs"]:
        mutants = [mutant for mutant in named(bug["threads"]) if mutant.kills in rows[mutant.name]["failed"].split()]
        state = "seen" if mutants else "inspect" if "inspect" in bug else "unseen"
        found[state] += 1
        comma = words["comma"]
        by = comma.join(dict.fromkeys(link(mutant.kills) for mutant in mutants))
        by = by or f"{words[state]}{words['colon']}{bug[state][language]}"
        which = comma.join(f"[{mutant.name}](#{mutant.name})" for mutant in mutants) or "-"
        lines.append(f"| {bug[language]} | {comma.join(map(thread, bug['threads']))} | {by} | {which} |\n")
    return [words["bugs"].format(count=len(lines), **found), *lines]


def thread(issue: str) -> str:
    repository, number = issue.split("#")
    return f"[{issue}](https://github.com/{repository}/issues/{number})"


def exhibit(mutant: Mutant, row: Mapping[str, Any], language: str) -> str:
    words = texts()[language]
    text = words["exhibit"].format(
        why=mutant.why if language == "en" else texts()["why"][mutant.name],
        threads=words["comma"].join(map(thread, (mutant.issue, *mutant.also))),
        link=link(mutant.kills),
        said=words["said"].format(said=row["said"]) if row["said"] else "",
    )
    return f"### {mutant.name}\n\n{text}\n\n```diff\n- {mutant.lines[0]}\n+ {mutant.lines[1]}\n```\n\n"


def anchor(id: str) -> str:
    return f"{PAGES.rpartition('/')[2]}#{id.lower()}"


def link(id: str) -> str:
    return f"**[{id}]({anchor(id)})**"
