"""The action that tells a web address."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tornasole._version import __version__
from tornasole.errors import SMDebugValueError
from tornasole.rules.actions.contract import Action, Occasion, Undone, number_at_least, persist

_WORTH_ANOTHER_TRY = (408, 425, 429)


@dataclass(frozen=True)
class Webhook(Action):
    """POSTs the finding as JSON to an address.

    Tried again, with growing pauses, when the connection fails or the server is busy or broken.

    Attributes:
        url: Where to; http or https. Logs show only its host: such addresses often are secrets.
        headers: More headers, such as ``Authorization``.
        timeout: Seconds for one attempt.
        attempts: How often to try.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    timeout: float = 10
    attempts: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        number_at_least(0.001, timeout=self.timeout)
        number_at_least(1, attempts=self.attempts)
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except (ValueError, AttributeError, TypeError) as error:
            raise SMDebugValueError(f"{self.url!r} is no address: {error}.") from None
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not plain:
            raise SMDebugValueError(
                f"A webhook needs an address such as https://example.org/hook, not {self.url!r}."
            )

    def perform(self, occasion: Occasion) -> None:
        content = json.dumps(occasion.to_json_dict(), allow_nan=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"tornasole/{__version__}",
            **self.headers,
        }
        request = Request(self.url, content, headers, method="POST")
        persist(lambda: self._post(request), self.attempts, occasion)

    def _post(self, request: Request) -> None:
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        try:
            with build_opener(_NoRedirect).open(request, timeout=self.timeout):
                return
        except HTTPError as error:
            error.close()
            again = error.code >= 500 or error.code in _WORTH_ANOTHER_TRY
            raise Undone(f"{host} answered {error.code} {error.reason}", again) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise Undone(f"{host} cannot be reached: {reason}", again=True) from None


class _NoRedirect(HTTPRedirectHandler):
    """Redirected POSTs become GETs without a body: the finding would get lost without a word."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
