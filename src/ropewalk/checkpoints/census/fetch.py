"""One GET at a time from a hub that may be slow, busy or hostile.

Asked politely: not faster than a rate, with If-None-Match where the answer is known, and again after 429 and 5xx only
when the hub says so (Retry-After) or after a pause that doubles. Bounded: in bytes, in seconds of the whole answer, in
tries, and in redirects, which stay on the host. No credentials are sent, and nothing that is packed is unpacked.
"""

from __future__ import annotations

import http.client
import random
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Timer
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ropewalk import __version__
from ropewalk.checkpoints.errors import plain
from ropewalk.checkpoints.files.strict_json import MOST_BYTES

CONTENT, UNCHANGED, MISSING, GATED, REFUSED, TOO_LARGE, NO_ANSWER = (
    *("content", "unchanged", "missing", "gated", "refused", "too large", "no answer"),
)
AGAIN = (408, 425, 429, 500, 502, 503, 504)
NOT_THERE = ("RepoNotFound", "EntryNotFound", "RevisionNotFound")
"""What the hub writes into X-Error-Code; its status for these is 401 to those who have not signed in."""
MOST_REDIRECTS = 5
LONGEST_TAG = 200


class Limits(NamedTuple):
    silence: float = 10.0
    """Seconds without a byte."""
    whole: float = 30.0
    """Seconds of one answer."""
    tries: int = 6
    first_pause: float = 1.0
    """Seconds before the second try; each pause after it is twice as long."""
    longest_pause: float = 300.0
    """The most of Retry-After that is waited for."""


class Answer(NamedTuple):
    state: str
    why: str = ""
    data: bytes = b""
    etag: str | None = None
    link: str = ""
    retries: int = 0


class _Busy(Exception):
    """To be asked again; `pause` is what the hub asked for."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class Client:
    """Keeps one connection open, and the pace between requests."""

    def __init__(self, interval: float = 0.0, limits: Limits | None = None) -> None:
        self.interval, self.limits = interval, limits or Limits()
        # A process that was just started waits too: that of many short-lived ones keeps the rate as well.
        self._next = time.monotonic() + interval
        self._open: tuple[tuple[str, str], http.client.HTTPConnection] | None = None

    def get(self, url: str, etag: str | None = None, most: int = MOST_BYTES) -> Answer:
        """Any outcome is an Answer."""
        why, pause = "", self.limits.first_pause
        for number in range(self.limits.tries):
            try:
                return self._followed(url, etag, most)._replace(retries=number)
            except _Busy as busy:
                why, asked = str(busy), busy.pause
            if asked is not None and asked > self.limits.longest_pause:
                return Answer(NO_ANSWER, f"{why}, and asks to wait {asked:,.0f} s", retries=number)
            if number + 1 < self.limits.tries:
                # Not all workers at the same moment.
                time.sleep((pause if asked is None else asked) * random.uniform(1.0, 1.25))
                pause = min(2 * pause, self.limits.longest_pause)
        return Answer(NO_ANSWER, why, retries=self.limits.tries - 1)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _followed(self, url: str, etag: str | None, most: int) -> Answer:
        start = urlsplit(url)
        for _ in range(MOST_REDIRECTS + 1):
            answer, there = self._asked(url, etag, most)
            if there is None:
                return answer
            url = urljoin(url, there)
            if urlsplit(url)[:2] != start[:2]:
                return Answer(REFUSED, f"redirects to another host, {plain(url, 100)}")
        return Answer(REFUSED, f"redirects more than {MOST_REDIRECTS} times")

    def _asked(self, url: str, etag: str | None, most: int) -> tuple[Answer, str | None]:
        """The answer, or where it is."""
        parts = urlsplit(url)
        headers = {"User-Agent": f"ropewalk/{__version__}", "Accept-Encoding": "identity", "Accept": "application/json"}
        if etag is not None:
            headers["If-None-Match"] = etag
        self._wait()
        kept = self._open is not None and self._open[0] == (parts.scheme, parts.netloc)
        try:
            return self._once(parts, headers, most)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if not kept:
                raise _Busy(f"{type(error).__name__}: {error}") from None
        # The hub had closed a connection that was kept open: no fault of its, and no try.
        self._wait()
        try:
            return self._once(parts, headers, most)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            raise _Busy(f"{type(error).__name__}: {error}") from None

    def _wait(self) -> None:
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        self._next = max(self._next, now) + self.interval

    def _once(self, parts: SplitResult, headers: dict[str, str], most: int) -> tuple[Answer, str | None]:
        connection = self._connection(parts)
        cut = False

        def end() -> None:
            nonlocal cut
            cut = True
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

        watch = Timer(self.limits.whole, end)
        watch.daemon = True
        watch.start()
        try:
            target = parts.path or "/"
            connection.request("GET", f"{target}?{parts.query}" if parts.query else target, headers=headers)
            response = connection.getresponse()
            data = response.read(most + 1)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not cut:
                raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if not cut:
                raise _Busy(plain(f"{type(error).__name__}: {error}")) from None
        else:
            if not cut:
                if response.will_close or len(data) > most or not response.isclosed():
                    self.close()
                return self._told(response, data, most)
        finally:
            watch.cancel()
        self.close()
        raise _Busy(f"no whole answer within {self.limits.whole:g} s")

    def _told(self, response: http.client.HTTPResponse, data: bytes, most: int) -> tuple[Answer, str | None]:
        status = response.status
        if status in (301, 302, 303, 307, 308) and (there := response.getheader("Location")):
            return Answer(REFUSED), there
        if status in AGAIN:
            raise _Busy(f"status {status}", _seconds(response.getheader("Retry-After")))
        if status == 304:
            return Answer(UNCHANGED), None
        if status == 200:
            if len(data) > most:
                return Answer(TOO_LARGE, f"over {most:,} bytes, which is the most that is read"), None
            if (packed := response.getheader("Content-Encoding", "identity")) != "identity":
                return Answer(REFUSED, f"is packed ({plain(packed, 50)}), which was not asked for"), None
            if (length := response.length) not in (0, None):
                raise _Busy(f"ended {length:,} bytes early")
            return Answer(CONTENT, "", data, _tag(response), response.getheader("Link", "")), None
        if status in (404, 410) or response.getheader("X-Error-Code") in NOT_THERE:
            return Answer(MISSING, f"status {status}"), None
        if status in (401, 403):
            return Answer(GATED, f"status {status}"), None
        return Answer(REFUSED, f"status {status}"), None

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        key = (parts.scheme, parts.netloc)
        if self._open is not None and self._open[0] == key:
            return self._open[1]
        self.close()
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        try:
            if proxy:
                through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
                connection = kind(through.hostname or "", through.port, timeout=self.limits.silence)
                connection.set_tunnel(parts.hostname or "", parts.port or (443 if secure else 80))
            else:
                connection = kind(parts.hostname or "", parts.port, timeout=self.limits.silence)
        except (ValueError, http.client.InvalidURL) as error:
            raise _Busy(plain(error)) from None
        self._open = key, connection
        return connection


def _tag(response: http.client.HTTPResponse) -> str | None:
    tag = response.getheader("ETag")
    return tag if tag and len(tag) <= LONGEST_TAG and tag.isascii() and tag.isprintable() else None


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After is a number of seconds or a date; what is neither is taken for absent."""
    if retry_after is None or len(retry_after) > 50:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
