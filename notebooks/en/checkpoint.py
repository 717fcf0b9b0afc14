# %% [markdown]
# # What is in your checkpoint
#
# A `config.json` decides where every token is, and engines read it differently. This notebook reads a config, shows
# what it means layer by layer, what engines make of it, and what it would take to read longer texts. No weights are
# needed.

# %%
try:
    import ropewalk as rw
except ImportError:
    # %pip install -q "ropewalk[plot] @ git+https://github.com/ropewalk/ropewalk"
    import ropewalk as rw

import json
import tempfile
from pathlib import Path

# %% [markdown]
# ## A config
#
# The part of Qwen2.5-7B-Instruct's config that is about positions, with the YaRN of its model card. Put the path of
# your own in its place: a directory, a `config.json`, a `.gguf` file, or `org/name` on the Hub.

# %%
config = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}
folder = Path(tempfile.mkdtemp())
path = folder / "qwen.json"
path.write_text(json.dumps(config))
report = rw.inspect(path)
print(report)

# %% [markdown]
# ## What engines compute
#
# Frequencies and gains of each engine, from the rules of its own source code. The length is what it serves unless
# told otherwise: here 32,768, since `max_position_embeddings` was not raised.

# %%
found = report.to_dict()
for name, engine in found["engines"].items():
    print(f"{name:15} length {engine['length']}")
assert report.agree

# %% [markdown]
# ## Pairs that never finish a turn
#
# A pair whose wavelength is longer than the training texts has seen only part of its circle. Past the trained length
# it meets angles that it never saw.

# %%
rw.plot.wavelengths(path)

# %% [markdown]
# ## What each scaling does
#
# Linear slows all pairs, YaRN only the slow ones.

# %%
rw.plot.scalings(path)

# %% [markdown]
# ## The keys to paste
#
# For 65,536 tokens factor 2 is enough. Every line was read back by the rules of its engine before it is shown.

# %%
for scaling in rw.inspect(path, to=65536).to_dict()["scalings"]:
    if scaling["scaling"] == "yarn":
        for override in scaling["overrides"]:
            print(override["engine"], "|", override["text"] or override["why"])

# %% [markdown]
# ## A mistake that nobody reports
#
# Without `rope_theta` some code takes 10,000. Here that is an error which says where was looked.

# %%
broken = {key: value for key, value in config.items() if key != "rope_theta"}
(folder / "broken.json").write_text(json.dumps(broken))
try:
    rw.inspect(folder / "broken.json")
except ValueError as error:
    print(error)
else:
    raise AssertionError("a base was invented")
