"""The kill matrix: every mutant, and every reference, run against every requirement; and the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.conformance.checks import every
from ropewalk.conformance.mutants import MUTANTS, SPECS, Mutant, Reference
from ropewalk.conformance.mutants.alone import BLAMELESS
from ropewalk.conformance.run import Report, verify
from ropewalk.conformance.spec import PAGES

APART = ("C32",)
"""Requirements that have no bound, and so kill nothing."""


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
    "C27": "pegainfer_220_past_the_end_of_the_table",
    "C29": "transformers_35716_graph_broken",
    "C30": "sparseml_1826_length_of_the_export",
    "C31": "x_transformers_182_values_rotated",
    "C33": "deepspeed_8345_theta_defaulted",
    "C34": "sglang_33117_one_table_for_all",
}
"""Requirement to a mutant that it sees and no other requirement does."""


def of_mutant(mutant: Mutant) -> dict[str, Any]:
    report = verify(mutant.target)
    return {"kills": mutant.kills, **statuses(report), "said": report[mutant.kills].why or report[mutant.kills].what}


def of_reference(name: str) -> dict[str, Any]:
    return statuses(verify(Reference(SPECS[name], name)))


def statuses(report: Report) -> dict[str, Any]:
    found = {
        status: " ".join(result.id for result in report.of(status)) for status in ("failed", "passed", "not applicable")
    }
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


def page(mutants: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/en/mutants.md."""
    failed = [name for name, row in references.items() if row["failed"]]
    killed = len(mutants) - len(survivors(mutants))
    kinds = len({row["kills"] for row in mutants.values()})
    lines = [
        "# The mutant museum",
        "",
        "A suite that nothing fails proves nothing. Each mutant below is one correct implementation,",
        "`ropewalk/conformance/mutants/reference.py`, with **one line** replaced by the line of a public bug.",
        "The suite must see every one, by the requirement named for it, and nothing in the implementation itself.",
        "",
        f"- {len(own(mutants)) - len(empty(mutants))} of {len(own(mutants))} requirements that have a bound have a",
        "  mutant that they alone kill, and pass one that is wrong elsewhere.",
        f"- {killed} of {len(mutants)} mutants are killed by the requirement named for them.",
        f"- {kinds} requirements are named for at least one mutant"
        f"{'; none for ' + ', '.join(idle(mutants)) if idle(mutants) else ', which is all that have a bound'}.",
        f"- The implementation itself, in {len(references)} configurations: "
        f"{'nothing is found' if not failed else 'something is found in ' + ', '.join(failed)}.",
        "",
        "Written by `python -m campaigns.mutants`; the same as data: `campaigns/results/mutants.json`. To see one die:",
        "",
        "```console",
        "$ ropewalk verify ropewalk.conformance.mutants:sglang_33558_gain_squared",
        "```",
        "",
        "An issue's number names the kind of bug and where it can be read about. The line is ours: written to do the",
        "same wrong, not taken from there.",
        "",
        "## Who kills whom",
        "",
        "In bold the requirement named for the mutant; after it the others that fail too.",
        "",
        "| mutant | claims to be | killed by | and by |",
        "|---|---|---|---|",
    ]
    for name, row in mutants.items():
        named = link(row["kills"]) if row["kills"] in row["failed"].split() else f"**not by {row['kills']}**"
        others = ", ".join(found for found in row["failed"].split() if found != row["kills"]) or "-"
        lines.append(f"| [{name}](#{name}) | {MUTANTS[name].of} | {named} | {others} |")
    lines += table(mutants)
    lines += ["", "## The mutants", ""]
    for name, row in mutants.items():
        lines += exhibit(MUTANTS[name], row)
    return "\n".join(lines).rstrip() + "\n"


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each requirement with a mutant that it alone kills, and one that it must not."""
    lines = [
        "",
        "## What each requirement sees, and does not",
        "",
        "*Own*: a mutant that this requirement kills and no other does, so that it is needed. *Not to blame*: a mutant",
        "that is wrong elsewhere, to which the requirement applies, and which passes it, so that it accuses the right",
        "thing. *All*: how many mutants it kills.",
        "",
        "| requirement | own | not to blame | all |",
        "|---|---|---|---|",
    ]
    for requirement, name in own(rows).items():
        kills = sum(requirement in row["failed"].split() for row in rows.values())
        pair = name, blameless(rows)[requirement]
        cells = " | ".join(f"[{each}](#{each})" if each else "**none**" for each in pair)
        lines.append(f"| [{requirement}]({anchor(requirement)}) {every()[requirement].title} | {cells} | {kills} |")
    return lines


def exhibit(mutant: Mutant, row: Mapping[str, Any]) -> list[str]:
    said = f" The suite says: {row['said']}." if row["said"] else ""
    return [
        f"### {mutant.name}",
        "",
        f"{mutant.why} Like [{mutant.issue}]({mutant.url}); killed by {link(mutant.kills)}.{said}",
        "",
        "```diff",
        f"- {mutant.lines[0]}",
        f"+ {mutant.lines[1]}",
        "```",
        "",
    ]


def anchor(id: str) -> str:
    return f"{PAGES.rpartition('/')[2]}#{id.lower()}"


def link(id: str) -> str:
    return f"**[{id}]({anchor(id)})**"
