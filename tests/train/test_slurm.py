"""examples/slurm.sbatch with two local agents of torchrun in place of two nodes, and Slurm's commands stood in for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk.yaml_text import to_yaml
from tests.train import small_recipe

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm.sbatch"
STAND_INS = {
    # A task on each of two nodes; the first option is srun's.
    "srun": 'shift; for node in 1 2; do "$@" & echo $! >> "$PIDS"; done; code=0\n'
    'for pid in $(cat "$PIDS"); do wait "$pid" || code=$?; done; exit $code',
    "scancel": 'test "$*" = "--signal=USR1 1234" && kill -USR1 $(cat "$PIDS")',
    "scontrol": 'if test "$1" = show; then printf "localhost\\nanother\\n"; else echo "$*" >> "$QUEUE"; fi',
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
}


def test_it_is_bash() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def until(done: Path, text: str, job: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 200
    while text not in (done.read_text(encoding="utf-8") if done.exists() else ""):
        assert job.poll() is None, done.read_text(encoding="utf-8")
        assert time.monotonic() < end, done.read_text(encoding="utf-8")
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_saves_before_its_time_is_up_is_queued_again_and_continues(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, body in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(to_yaml(small_recipe.recipe(1_000_000, 500_000).model_dump(mode="json")))
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment |= {"SLURM_JOB_ID": "1234", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "two"}
    environment |= {"QUEUE": str(tmp_path / "queue"), "PIDS": str(tmp_path / "pids")}
    environment |= {"RECIPE": str(recipe), "RUN": str(run)}
    environment |= {"PYTHONPATH": str(SCRIPT.parents[1] / "src")}
    for times, wanted in ((1, "begins at step 1"), (2, "continues from step")):
        (tmp_path / "pids").write_text("")
        with (tmp_path / "said").open("wb") as said:
            job = subprocess.Popen(["bash", SCRIPT, "--device", "cpu"], env=environment, stdout=said, stderr=said)
        until(tmp_path / "said", wanted, job)
        until(tmp_path / "said", " to go", job)  # a step is behind it
        job.send_signal(signal.SIGUSR1)
        code = job.wait(120)
        text = (tmp_path / "said").read_text(encoding="utf-8")
        assert code == 0, text
        assert "continue with --resume" in text
        assert (tmp_path / "queue").read_text().splitlines() == ["requeue 1234"] * times
        assert list((run / "checkpoints").glob("step-*")), text
    # A job that fails by itself is not queued again, and says so by its code.
    (tmp_path / "pids").write_text("")
    (tmp_path / "bin" / "torchrun").write_text("#!/usr/bin/env bash\nexit 7\n")
    assert subprocess.run(["bash", SCRIPT], env=environment, capture_output=True, check=False).returncode == 7
    assert len((tmp_path / "queue").read_text().splitlines()) == 2
