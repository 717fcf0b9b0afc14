# %% [markdown]
# # 你的检查点里有什么
#
# 每个词元在什么位置，由 `config.json` 决定，而各引擎的读法并不相同。本 notebook 读取一份配置，逐层显示它的含义、
# 各引擎会算出什么，以及要读更长的文本该怎么办。不需要权重。

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
# ## 一份配置
#
# Qwen2.5-7B-Instruct 的配置中与位置有关的部分，加上模型卡里的 YaRN。可以换成你自己的路径：
# 目录、`config.json`、`.gguf` 文件，或 Hub 上的 `org/name`。

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
# ## 各引擎算出什么
#
# 每个引擎的频率和增益，规则来自它自己的源代码。长度是未另行指定时的服务长度：这里是 32,768，
# 因为没有改 `max_position_embeddings`。

# %%
found = report.to_dict()
for name, engine in found["engines"].items():
    print(f"{name:15} length {engine['length']}")
assert report.agree

# %% [markdown]
# ## 转不满一圈的特征对
#
# 波长比训练文本还长的特征对，只见过圆周的一部分。超出训练长度，就会遇到从未见过的角度。

# %%
rw.plot.wavelengths(path)

# %% [markdown]
# ## 各种缩放的作用
#
# linear 让所有特征对变慢，YaRN 只让慢的变慢。

# %%
rw.plot.scalings(path)

# %% [markdown]
# ## 可以粘贴的键
#
# 要 65,536 个词元，因子 2 就够了。每一行都先按该引擎的规则读回来核对，才会显示。

# %%
for scaling in rw.inspect(path, to=65536).to_dict()["scalings"]:
    if scaling["scaling"] == "yarn":
        for override in scaling["overrides"]:
            print(override["engine"], "|", override["text"] or override["why"])

# %% [markdown]
# ## 没人报告的错误
#
# 没有 `rope_theta` 时，有些代码会取 10,000。在这里会报错，并说明在哪些地方找过。

# %%
broken = {key: value for key, value in config.items() if key != "rope_theta"}
(folder / "broken.json").write_text(json.dumps(broken))
try:
    rw.inspect(folder / "broken.json")
except ValueError as error:
    print(error)
else:
    raise AssertionError("a base was invented")
