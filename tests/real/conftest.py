"""llama.cpp, asked for the tokens of a text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

Tokenize = Callable[[str, bool], list[int]]


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[Callable[[Path], Tokenize]]:
    """Opens a GGUF file: a function of a text, and of whether special tokens are added, that gives ids."""
    xllamacpp = pytest.importorskip("xllamacpp")
    opened: list[Any] = []

    def open_file(path: Path) -> Tokenize:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx = 64
        settings.n_parallel = 1
        settings.cpuparams.n_threads = 1
        settings.warmup = False
        while opened:
            opened.pop().close()
        server = xllamacpp.Server(settings)
        connection = HTTPConnection(server.listening_address.partition("//")[2], timeout=60)
        opened.append(connection)

        def tokenize(text: str, special: bool, keep: Any = server) -> list[int]:
            asked = json.dumps({"content": text, "add_special": special, "parse_special": True})
            connection.request("POST", "/tokenize", asked, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["tokens"]

        return tokenize

    yield open_file
    for connection in opened:
        connection.close()
