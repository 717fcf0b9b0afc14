"""A hub on this machine with any number of generated configs, and with the faults of a busy or hostile one.

A config is one of the published ones with its base, its length and its scaling changed by its number, so what a census
must count is known without reading anything. Each process can make config `n` again: nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections import Counter
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

PUBLISHED = Path(__file__).parents[1] / "published"
MODELS = ("llama-2-7b", "llama-3-8b", "qwen2.5-0.5b", "mistral-7b-v0.2", "qwen3-0.6b", "smollm2-135m")
SCALINGS = ("none", "linear", "yarn", "llama3")
RESOLVE = "/resolve/main/config.json"


@cache
def published(model: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{model}.json").read_text(encoding="utf-8"))


def name_of(number: int) -> str:
    return f"org{number % 7}/model-{number}"


def settings(number: int) -> tuple[float, int, str]:
    """Base, length and scaling of a config."""
    return 10_000.0 * (1 + number % 97), 2 ** (12 + number % 5), SCALINGS[number // 5 % 4]


def generated(number: int) -> bytes:
    base, length, kind = settings(number)
    block: dict[str, Any] = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": length // 4}
    if kind == "linear":
        del block["original_max_position_embeddings"]
    if kind == "llama3":
        block |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    changed = {"rope_theta": base, "max_position_embeddings": length, "vocab_size": 32_000 + number}
    changed["rope_scaling"] = None if kind == "none" else block
    return json.dumps({**published(MODELS[number % len(MODELS)]), **changed}).encode()


class Hub:
    """`faults` are statuses of the first answers for a name, or words: slow, cut, close; `bodies` other contents."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.faults: dict[str, list[int | str]] = {}
        self.always: dict[str, int | str] = {}
        self.bodies: dict[str, bytes] = {}
        self.retry_after = "0"
        self.seen: Counter[str] = Counter()
        """Requests by name, and answers by status."""
        self.times: list[float] = []
        self.change = 0
        """Added to the number of a config: all of them change."""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def fault_of(self, name: str) -> int | str | None:
        waiting = self.faults.get(name)
        return waiting.pop(0) if waiting else self.always.get(name)

    def body(self, name: str) -> bytes | None:
        if name in self.bodies:
            return self.bodies[name]
        _, _, number = name.rpartition("-")
        if not number.isdecimal() or name_of(int(number)) != name or int(number) >= self.count:
            return None
        return generated(int(number) + self.change)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # whoever was killed hangs up
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets: without this, the second waits 40 ms for the client's delayed ACK.
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub, parts = self.hub, urlsplit(self.path)
        hub.times.append(time.monotonic())
        if parts.path == "/api/models":
            self.listed(parse_qs(parts.query))
            return
        name = unquote(parts.path).removesuffix(RESOLVE).strip("/")
        hub.seen[name] += 1
        fault = hub.fault_of(name)
        if fault is not None:
            self.fault(fault, name)
            return
        data = hub.body(name)
        if data is None:
            self.answer(404, b"{}")
            return
        tag = f'"{hashlib.sha1(data).hexdigest()}"'
        if self.headers.get("If-None-Match") == tag:
            self.answer(304, None, ETag=tag)
            return
        self.answer(200, data, ETag=tag)

    def fault(self, fault: int | str, name: str) -> None:
        if fault == "slow":
            time.sleep(1.5)
            self.close_connection = True
        elif fault == "drip":  # a byte now and then: never silent for long, and never done
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(15):
                time.sleep(0.1)
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    break
            self.close_connection = True
        elif fault == "close":
            self.close_connection = True
        elif fault == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            self.close_connection = True
        elif isinstance(fault, str):
            self.answer(307, b"", Location=fault)
        else:
            self.answer(fault, b"{}", **({"Retry_After": self.hub.retry_after} if fault == 429 else {}))

    def listed(self, query: dict[str, list[str]]) -> None:
        """Pages of names, with the address of the next in Link, as the hub has them."""
        start, limit = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        end = min(start + limit, self.hub.count)
        data = json.dumps([{"id": name_of(number), "tags": ["a"]} for number in range(start, end)]).encode()
        link = f'<{self.hub.address}/api/models?limit={limit}&cursor={end}>; rel="next"'
        self.answer(200, data, **({"Link": link} if end < self.hub.count else {}))

    def answer(self, status: int, data: bytes | None, **headers: str) -> None:
        self.hub.seen[str(status)] += 1
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if data is not None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data:
            try:
                self.wfile.write(data)
            except OSError:  # whoever asked has read enough
                self.close_connection = True
