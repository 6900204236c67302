"""The action that sends an e-mail."""

from __future__ import annotations

import os
import smtplib
import socket
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from tornasole.errors import SMDebugValueError
from tornasole.rules.actions import sns
from tornasole.rules.actions.contract import (
    Action,
    Occasion,
    Undone,
    headline,
    number_at_least,
    one_line,
    persist,
)

_TLS = ("auto", "starttls", "ssl", "none")


@dataclass(frozen=True)
class Email(Action):
    """Sends the finding by SMTP.

    What is not given comes from the environment: ``SMTP_HOST``, ``SMTP_PORT``, ``SMTP_FROM``,
    ``SMTP_USER``, ``SMTP_PASSWORD``, ``SMTP_TLS``. Without any host, Amazon's SNS sends it, if
    ``boto3`` is installed.

    Attributes:
        to: One address, or several with commas between.
        host: The SMTP server.
        port: Its port; default: 465 with ``ssl``, 587 with a user, else 25.
        sender: The address it comes from; default: the user, or tornasole@ this host.
        tls: ``ssl`` from the start, ``starttls``, ``none``; ``auto``: ``starttls`` if the server
            can. A password is never sent in the open unless ``none`` asks for it.
        timeout: Seconds for one attempt.
        attempts: How often to try.
    """

    to: str
    host: str | None = None
    port: int | None = None
    sender: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: str | None = None
    timeout: float = 30
    attempts: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        number_at_least(0.001, timeout=self.timeout)
        number_at_least(1, attempts=self.attempts)
        for address in _addresses(self.to) or [self.to]:
            if not _is_address(address):
                raise SMDebugValueError(f"An e-mail goes to an address, not to {address!r}.")
        if self.tls is not None and self.tls not in _TLS:
            raise SMDebugValueError(f"tls must be one of {', '.join(_TLS)}, not {self.tls!r}.")

    def obstacle(self) -> str:
        if self.host or os.environ.get("SMTP_HOST") or not sns.obstacle():
            return ""
        return "no SMTP server is known: give host=, or set SMTP_HOST in the environment"

    def perform(self, occasion: Occasion) -> None:
        if obstacle := self.obstacle():
            raise Undone(obstacle)
        if not (self.host or os.environ.get("SMTP_HOST")):
            for address in _addresses(self.to):
                sns.publish("email", address, occasion.line)
            return
        server = self._server()
        letter = _letter(self.to, server, occasion)
        persist(lambda: _send(letter, server, self.timeout), self.attempts, occasion)

    def _server(self) -> _Server:
        user = self.user or os.environ.get("SMTP_USER")
        tls = self.tls or os.environ.get("SMTP_TLS", "auto").lower()
        port = self.port or os.environ.get("SMTP_PORT")
        if tls not in _TLS:
            raise Undone(f"SMTP_TLS must be one of {', '.join(_TLS)}, not {tls!r}")
        try:
            number = int(port or (465 if tls == "ssl" else 587 if user else 25))
        except ValueError:
            raise Undone(f"SMTP_PORT must be a number, not {port!r}") from None
        sender = self.sender or os.environ.get("SMTP_FROM")
        if not sender:
            sender = user if user and "@" in user else f"tornasole@{socket.gethostname()}"
        if not _is_address(sender):
            raise Undone(f"the sender must be an address, not {sender!r}")
        return _Server(
            host=self.host or os.environ["SMTP_HOST"],
            port=number,
            sender=sender,
            user=user,
            password=self.password or os.environ.get("SMTP_PASSWORD"),
            tls="ssl" if tls == "auto" and number == 465 else tls,
        )


@dataclass(frozen=True)
class _Server:
    """How to send, with all that the environment adds."""

    host: str
    port: int
    sender: str
    user: str | None
    password: str | None = field(repr=False)
    tls: str


def _addresses(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_address(text: str) -> bool:
    return "@" in text[1:-1] and text.isprintable() and not set(text) & set(" <>,;")


def _letter(to: str, server: _Server, occasion: Occasion) -> EmailMessage:
    finding = occasion.finding
    letter = EmailMessage()
    letter["From"], letter["To"] = server.sender, ", ".join(_addresses(to))
    letter["Subject"] = one_line(f"[{finding.severity.value}] {headline(finding)}")[:200]
    letter["Date"], letter["Message-ID"] = formatdate(), make_msgid(domain="tornasole.invalid")
    parts = [
        finding.message,
        f"Trial: {occasion.trial}" if occasion.trial else "",
        _listed("Tensors:", finding.tensors),
        _listed("Likely causes:", finding.causes),
        _listed("What to try:", finding.remedies),
    ]
    body = "\n\n".join(part for part in parts if part) + "\n"
    letter.set_content(body.encode("utf-8", "backslashreplace").decode())
    return letter


def _listed(title: str, items: tuple[str, ...]) -> str:
    return "\n".join([title, *(f"  - {one_line(item)}" for item in items)]) if items else ""


def _send(letter: EmailMessage, server: _Server, timeout: float) -> None:
    where = f"{server.host}:{server.port}"
    try:
        with _connection(server, timeout) as connection:
            if server.user:
                connection.login(server.user, server.password or "")
            connection.send_message(letter)
    except smtplib.SMTPResponseException as error:
        words = error.smtp_error
        said = words.decode(errors="replace") if isinstance(words, bytes) else words
        raise Undone(f"{where} answered {error.smtp_code} {said}", error.smtp_code < 500) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise Undone(f"{where} refuses to send to {', '.join(error.recipients)}") from None
    except (smtplib.SMTPNotSupportedError, ssl.SSLError) as error:
        raise Undone(f"{where}: {error}") from None
    except (OSError, ValueError) as error:
        raise Undone(f"{where} cannot be reached: {error}", again=True) from None


def _connection(server: _Server, timeout: float) -> smtplib.SMTP:
    if server.tls == "ssl":
        return smtplib.SMTP_SSL(
            server.host, server.port, timeout=timeout, context=ssl.create_default_context()
        )
    connection = smtplib.SMTP(server.host, server.port, timeout=timeout)
    try:
        connection.ehlo()
        if server.tls == "starttls" or (server.tls == "auto" and connection.has_extn("starttls")):
            connection.starttls(context=ssl.create_default_context())
        elif server.user and server.tls != "none":
            raise smtplib.SMTPNotSupportedError(
                "the server offers no encryption, and a password is not sent in the open; "
                "tls='none' or SMTP_TLS=none sends it all the same"
            )
    except OSError:
        connection.close()
        raise
    return connection
