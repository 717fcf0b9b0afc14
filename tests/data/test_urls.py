"""Inputs and outputs by URL: the same bytes as by path, and complete or not there however it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from ropewalk import crash
from ropewalk.data import urls
from ropewalk.data.config import TextData
from ropewalk.data.layout import changed, describe
from ropewalk.data.open import open_data
from ropewalk.data.prepare import dataset
from ropewalk.data.prepare.dataset import prepare
from tests.data.test_prepare import SMALL, contents, lines

OUT = "s3://bucket/ready?region=nowhere"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system of another machine, which is a directory here; the current folder is an empty one."""
    system = fs.SubTreeFileSystem(str(tmp_path / "remote"), fs.LocalFileSystem())
    monkeypatch.setattr(urls, "_resolved", lambda url: (system, url.partition("://")[2].partition("?")[0]))
    folder = tmp_path / "remote" / "bucket"
    (folder / "texts" / "deep").mkdir(parents=True)
    for seed, name in enumerate(("a.txt", "b.txt", "deep/c.txt")):
        (folder / "texts" / name).write_text(lines(seed), encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


@pytest.fixture
def wanted(bucket: Path, tmp_path: Path) -> dict[str, str]:
    prepare([bucket / "texts"], tmp_path / "by-path", SMALL)
    return contents(tmp_path / "by-path")


def test_a_file_url_is_a_path(bucket: Path, tmp_path: Path, wanted: dict[str, str]) -> None:
    (tmp_path / "with space").mkdir()
    out = (tmp_path / "with space" / "out").as_uri()
    assert "%20" in out
    about = prepare([(bucket / "texts").as_uri()], out, SMALL)
    assert contents(tmp_path / "with space" / "out") == wanted
    assert describe(out) == about
    with pytest.raises(ValueError, match=r"file://texts/a.txt: a file's URL has its whole path"):
        prepare(["file://texts/a.txt"], out, SMALL)


def test_there_and_back(bucket: Path, wanted: dict[str, str]) -> None:
    about = prepare(["s3://bucket/texts"], OUT, SMALL)
    assert contents(bucket / "ready") == wanted
    assert describe(OUT) == about
    assert list(Path().iterdir()) == []
    assert changed(OUT) == []
    assert prepare(["s3://bucket/texts"], OUT, SMALL) == about
    (bucket / "ready" / "train" / "tokens-00001.bin").write_bytes(b"other")
    assert changed(OUT) == ["s3://bucket/ready/train/tokens-00001.bin"]
    with pytest.raises(ValueError, match="is there already, from other text"):
        prepare(["s3://bucket/texts/a.txt"], OUT, SMALL)
    with pytest.raises(ValueError, match=r"^data.path s3://bucket/ready: training reads from a disk of this machine"):
        open_data(TextData(path=OUT), stack="decoder", seed=0)


def test_parquet_is_read_there(bucket: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [{"text": line} for line in lines(3, 300).splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), bucket / "a.parquet", row_group_size=70)
    prepare([bucket / "a.parquet"], "by-path", SMALL)
    prepare(["s3://bucket/a.parquet"], "by-url", SMALL)
    assert contents(Path("by-url")) == contents(Path("by-path"))


class Stopped(BaseException):
    pass


# Stopped by an exception, not by a kill: files that were open are closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "point", ["prepare.survey", "prepare.state:9", "prepare.shipped:3", "prepare.tokens", "prepare.uploaded"]
)
def test_stopped_and_run_again_it_is_the_same(
    bucket: Path, wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    name, _, times = point.partition(":")
    left = [int(times or 1)]

    def here(at: str) -> None:
        left[0] -= at == name
        if at == name and not left[0]:
            raise Stopped

    monkeypatch.setattr(dataset, "COMMIT_SECONDS", 0)
    monkeypatch.setattr(crash, "here", here)
    with pytest.raises(Stopped):
        prepare(["s3://bucket/texts"], OUT, SMALL)
    assert not (bucket / "ready" / "data.json").exists()
    with pytest.raises(ValueError, match=r"cut off; run it again to go on \(ready.part\)"):
        describe(OUT)
    if "state" in point or "shipped" in point:
        # A shard that has ended is on its way, and the room it took is free again.
        gone = {file.name for file in (bucket / "ready" / "train").iterdir()}
        assert gone - {file.name for file in Path("ready.part/train").iterdir()}
    if point != "prepare.survey":
        with pytest.raises(ValueError, match=r"ready.part was begun with --out s3://bucket/ready; give the same again"):
            prepare(["s3://bucket/texts"], "s3://bucket/other/ready", SMALL)
    prepare(["s3://bucket/texts"], OUT, SMALL)
    assert contents(bucket / "ready") == wanted
    assert list(Path().iterdir()) == []


def test_what_is_not_there_is_told(bucket: Path) -> None:
    with pytest.raises(ValueError, match=r"^s3://bucket/nothing.txt: no such file$"):
        prepare(["s3://bucket/nothing.txt"], OUT, SMALL)
    with pytest.raises(ValueError, match=r"^s3://bucket/texts/deep: no .tsv, .jsonl, .parquet file in it$"):
        prepare(["s3://bucket/texts/deep"], OUT, SMALL.model_copy(update={"kind": "pairs"}))


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^ftp://there/a.txt: file://, s3://, gs:// and hdfs:// are read here"
    ) as told:
        urls.located("ftp://name:secret@there/a.txt")
    assert "secret" not in str(told.value)


def test_a_key_in_a_url_is_not_shown() -> None:
    assert str(urls.Remote("s3://name:secret@bucket/a?region=x", "bucket/a")) == "s3://bucket/a"
