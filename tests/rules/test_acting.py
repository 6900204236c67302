"""Actions: what is done about findings, once, beside the training, whatever fails."""

import http.server
import json
import logging
import os
import socketserver
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import tornasole
from tornasole.errors import SMDebugTypeError, SMDebugValueError, TrainingStopped
from tornasole.rules import (
    SMS,
    ActionList,
    Call,
    Command,
    Email,
    Finding,
    Severity,
    StopTraining,
    Webhook,
    attach,
    findings_of,
    load_action,
)
from tornasole.rules.acting import Acting
from tornasole.rules.actions import contract
from tornasole.types import ModeKeys, Role

HOSTILE = "$(touch pwned); `touch pwned`\n'\"; touch pwned; \x1b[2J"


def finding(step=1, severity=Severity.WARNING, tensors=("fc.weight",), **more):
    message = f"{len(tensors)} tensors are wrong: {', '.join(tensors)}."
    return Finding("a_rule", severity, step, ModeKeys.TRAIN, step, tensors, message, **more)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOST", "PORT", "FROM", "USER", "PASSWORD", "TLS"):
        monkeypatch.delenv(f"SMTP_{name}", raising=False)
    monkeypatch.setattr(contract, "_BACK_OFF", (0.01,))


@pytest.fixture
def act(tmp_path):
    """Has findings acted on, and waits until that is done; returns the reasons to stop."""

    def act(actions, *findings, where=None, timeout=30):
        reasons = []
        acting = Acting(actions, reasons.append, where and str(where))
        for each in findings:
            acting.take(each)
        acting.close(timeout)
        return reasons

    return act


# -- when


def test_a_finding_is_logged_at_a_level_that_fits(act, caplog):
    caplog.set_level(logging.INFO, "tornasole")
    act([], *(finding(severity=severity) for severity in Severity))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "CRITICAL"]
    assert "a_rule at step 1 (TRAIN 1): 1 tensors are wrong" in caplog.text


def test_findings_are_written_to_the_trial(act, tmp_path):
    act([], finding(1), finding(2), where=tmp_path)
    assert findings_of(tmp_path) == [finding(1), finding(2)]


@pytest.mark.parametrize(
    ("at", "steps"), [("info", [0, 1, 2]), ("warning", [1, 2]), ("critical", [2])]
)
def test_an_action_is_for_its_severity_and_above(act, at, steps):
    seen = []
    findings = [finding(step, severity) for step, severity in enumerate(Severity)]
    act([Call(seen.append, at=at)], *findings)
    assert [each.step for each in seen] == steps


def test_by_default_an_action_is_for_warnings(act):
    seen = []
    act([seen.append], finding(severity=Severity.INFO), finding(2))
    assert [each.step for each in seen] == [2]


def test_each_action_is_done_once_per_finding_in_order(act):
    seen = []
    act(
        [lambda f: seen.append(("a", f.step)), lambda f: seen.append(("b", f.step))],
        *map(finding, range(3)),
    )
    assert seen == [(name, step) for step in range(3) for name in "ab"]


def test_taking_a_finding_does_not_wait_for_its_actions():
    leave, done = threading.Event(), []
    acting = Acting([lambda f: (leave.wait(30), done.append(f))], print, None)
    acting.take(finding())
    assert not done
    leave.set()
    acting.close(30)
    assert len(done) == 1


def test_closing_gives_up_after_its_time(caplog):
    leave = threading.Event()
    acting = Acting([lambda f: leave.wait(30)], print, None)
    acting.take(finding(1))
    acting.take(finding(2))
    began = time.monotonic()
    acting.close(0.05)
    assert time.monotonic() - began < 5
    assert "the actions for 2 findings were not done yet" in caplog.text
    leave.set()


def test_what_is_found_after_the_end_is_still_done(act, tmp_path):
    seen = []
    acting = Acting([seen.append], print, str(tmp_path))
    acting.close()
    acting.take(finding())
    assert (len(seen), len(findings_of(tmp_path))) == (1, 1)


def test_without_findings_there_is_no_thread():
    before = threading.active_count()
    Acting(["stop"], print, None).close()
    assert threading.active_count() == before


def test_when_the_interpreter_ends_what_is_left_is_done(tmp_path):
    script = (
        "import sys, time\n"
        "from tornasole.rules.acting import Acting\n"
        "from tornasole.rules import Finding, Severity\n"
        "from tornasole.types import ModeKeys\n"
        "def slow(finding):\n"
        "    time.sleep(0.2)\n"
        "    open(f'{sys.argv[1]}/{finding.step}', 'w').close()\n"
        "acting = Acting([slow], print, sys.argv[1])\n"
        "for step in range(3):\n"
        "    acting.take(Finding('r', Severity.WARNING, step, ModeKeys.TRAIN, step, (), 'm'))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "findings"]
    assert len(findings_of(tmp_path)) == 3


def test_a_trial_that_cannot_be_written_to_is_one_line_in_the_log(act, tmp_path, caplog):
    (tmp_path / "findings").write_text("a file in the way")
    seen = []
    act([seen.append], finding(), where=tmp_path)
    assert len(seen) == 1
    assert "1 findings could not be written to the trial" in caplog.text


# -- stop


def test_stop_is_asked_for_at_once_and_once():
    reasons = []
    acting = Acting(["stop"], reasons.append, None)
    acting.take(finding(1))
    acting.take(finding(2))
    assert reasons == ["a_rule: 1 tensors are wrong: fc.weight."]
    acting.close()


def test_stop_waits_for_its_severity(act):
    stop = StopTraining(at="critical")
    assert act([stop], finding()) == []
    assert len(act([stop], finding(severity=Severity.CRITICAL))) == 1


def test_a_rule_that_failed_stops_no_training(act):
    seen = []
    assert act(["stop", seen.append], finding(rule_failed=True)) == []
    assert len(seen) == 1


def test_an_attached_rule_stops_the_training_at_the_next_step(tmp_path):
    hook = tornasole.Hook(
        tmp_path / "job", save_config=tornasole.SaveConfig(save_interval=1), save_all=True
    )
    attach(hook, ["vanishing_gradient"], actions=["stop"])
    step = -1
    with pytest.raises(TrainingStopped, match="vanishing_gradient"):
        for step in range(10):
            hook.begin_step()
            hook._recorder.record("g", Role.GRADIENT, [1e-9 if step >= 4 else 1.0])
    assert step == 5
    trial = tornasole.create_trial(tmp_path / "job")
    assert (trial.state, trial.steps()) == ("finished", [0, 1, 2, 3, 4])


# -- call


def test_a_function_that_fails_is_one_line_in_the_log_and_the_others_go_on(act, caplog):
    seen = []

    def broken(finding):
        raise KeyError("two\nlines")

    act([broken, seen.append], finding(1), finding(2))
    assert [each.step for each in seen] == [1, 2]
    (line, _) = [r.getMessage() for r in caplog.records if "not done" in r.getMessage()]
    assert "Call for a_rule at step 1 (TRAIN 1) was not done: KeyError" in line
    assert "\n" not in line


# -- webhook


@pytest.fixture
def web():
    """A web server; it answers as told, one code after the other, then 200."""
    got = SimpleNamespace(requests=[], codes=[], headers={})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            got.requests.append(SimpleNamespace(content=content, headers=self.headers))
            self.send_response(got.codes.pop(0) if got.codes else 200)
            for name, value in got.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        got.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        yield got
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody_there():
    """An address at which nobody listens."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        port = server.server_address[1]
    return f"127.0.0.1:{port}"


def test_a_webhook_posts_the_finding_as_json(act, web, tmp_path):
    nan = finding(evidence={"largest": float("nan")})
    act([Webhook(web.url, headers={"Authorization": "Bearer x"})], nan, where=tmp_path)
    (request,) = web.requests
    content = json.loads(request.content, parse_constant=lambda c: pytest.fail(c))
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Authorization"] == "Bearer x"
    assert (content["rule"], content["severity"], content["step"]) == ("a_rule", "warning", 1)
    assert content["trial"] == str(tmp_path)
    assert content["text"].startswith("[warning] a_rule at step 1 (TRAIN 1): 1 tensors")


def test_a_webhook_tries_again_when_the_server_is_broken(act, web, caplog):
    web.codes = [500, 503, 429]
    act([f"webhook:{web.url}"], finding())
    assert len(web.requests) == 4
    assert "not done" not in caplog.text


def test_a_webhook_gives_up_in_one_line(act, web, caplog):
    web.codes = [500] * 9
    act([Webhook(web.url, attempts=2)], finding())
    assert len(web.requests) == 2
    assert "Webhook for a_rule at step 1 (TRAIN 1) was not done: 127.0.0.1" in caplog.text
    assert "answered 500" in caplog.text


@pytest.mark.parametrize("code", [400, 404])
def test_a_webhook_does_not_repeat_what_is_refused(act, web, caplog, code):
    web.codes = [code] * 9
    act([Webhook(web.url)], finding())
    assert len(web.requests) == 1
    assert f"answered {code}" in caplog.text


def test_a_webhook_is_not_led_elsewhere(act, web, caplog):
    web.codes, web.headers = [302], {"Location": web.url}
    act([Webhook(web.url)], finding())
    assert len(web.requests) == 1
    assert "answered 302" in caplog.text


def test_a_webhook_that_is_down_stops_nothing(act, nobody_there, caplog):
    seen = []
    act([f"webhook:http://{nobody_there}/secret", seen.append], finding())
    assert len(seen) == 1
    assert f"{nobody_there} cannot be reached" in caplog.text
    assert "secret" not in caplog.text
    assert "secret" not in repr(Webhook(f"http://{nobody_there}/secret"))


@pytest.mark.parametrize("url", ["", "x", "ftp://a/b", "http://", "http://a:x/", "http://a b/"])
def test_a_webhook_needs_an_address(url):
    with pytest.raises(SMDebugValueError, match="address"):
        Webhook(url)


# -- e-mail


class OnePost(socketserver.StreamRequestHandler):
    """Speaks enough SMTP to take letters."""

    def handle(self):
        self.say("220 hello")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            self.server.heard.append(line)
            if verb in self.server.refuses:
                self.say(self.server.refuses.pop(verb))
            elif verb == "DATA":
                self.say("354 go on")
                letter = b""
                while not letter.endswith(b"\r\n.\r\n"):
                    letter += self.rfile.readline()
                self.server.letters.append(letter.decode())
                self.say("250 taken")
            else:
                self.say("221 bye" if verb == "QUIT" else "250 fine")

    def say(self, text):
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def post(monkeypatch):
    """A mail server; ``SMTP_HOST`` and ``SMTP_PORT`` name it."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OnePost) as server:
        server.letters, server.heard, server.refuses = [], [], {}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("SMTP_HOST", "127.0.0.1")
        monkeypatch.setenv("SMTP_PORT", str(server.server_address[1]))
        yield server
        server.shutdown()
        thread.join()


def test_an_email_tells_what_was_found(act, post, tmp_path):
    told = finding(causes=("a bug",), remedies=("mend it",))
    act(["email:me@example.org, you@example.org"], told, where=tmp_path)
    (letter,) = post.letters
    assert "Subject: [warning] a_rule at step 1 (TRAIN 1)" in letter
    assert "To: me@example.org, you@example.org" in letter
    assert "From: tornasole@" in letter
    for words in ("1 tensors are wrong", "- a bug", "- mend it"):
        assert words in letter


def test_an_email_server_can_be_given(act, post, monkeypatch):
    monkeypatch.delenv("SMTP_HOST")
    monkeypatch.delenv("SMTP_PORT")
    port = post.server_address[1]
    act([Email("me@example.org", "127.0.0.1", port, sender="job@example.org")], finding())
    assert "From: job@example.org" in post.letters[0]


def test_names_cannot_add_headers_to_an_email(act, post):
    evil = finding(tensors=("x\r\nBcc: victim@example.org",))
    act([Email("me@example.org")], Finding(**{**vars(evil), "rule": "r\nBcc: v@example.org"}))
    (letter,) = post.letters
    head = letter.partition("\r\n\r\n")[0]
    assert "\nBcc" not in head
    assert [line for line in post.heard if line.upper().startswith("RCPT")] == [
        "rcpt TO:<me@example.org>"
    ]


def test_an_email_is_tried_again_when_the_server_is_busy(act, post, caplog):
    post.refuses = {"MAIL": "451 later"}
    act(["email:me@example.org"], finding())
    assert len(post.letters) == 1
    assert "not done" not in caplog.text


def test_an_email_that_is_refused_is_one_line_in_the_log(act, post, caplog):
    post.refuses = {"RCPT": "550 nobody here"}
    act(["email:me@example.org"], finding())
    assert not post.letters
    assert "refuses to send to me@example.org" in caplog.text


def test_a_password_is_not_sent_in_the_open(act, post, caplog):
    act([Email("me@example.org", user="me", password="hush")], finding())
    assert not post.letters
    assert "a password is not sent in the open" in caplog.text
    assert "hush" not in repr(Email("me@example.org", password="hush"))


def test_an_email_server_that_is_down_stops_nothing(act, nobody_there, monkeypatch, caplog):
    host, _, port = nobody_there.partition(":")
    act([Email("me@example.org", host, int(port), attempts=2)], finding())
    assert f"Email for a_rule at step 1 (TRAIN 1) was not done: {nobody_there}" in caplog.text


def test_that_no_mail_server_is_known_is_said_beforehand(caplog):
    Acting(["email:me@example.org"], print, None)
    assert "SMTP_HOST" in caplog.text


@pytest.mark.parametrize("to", ["", "me", "@", "a@b\nBcc: c@d", "a@b c@d"])
def test_an_email_needs_an_address(to):
    with pytest.raises(SMDebugValueError, match="address"):
        Email(to)


# -- commands


def test_a_command_gets_the_finding_on_stdin_and_in_the_environment(act, tmp_path):
    act([f'command:cat > {tmp_path}/in; echo "$TORNASOLE_FINDING" > {tmp_path}/env'], finding())
    assert json.loads((tmp_path / "in").read_text())["message"] == finding().message
    assert json.loads((tmp_path / "env").read_text())["step"] == 1


def test_a_command_without_a_shell(act, tmp_path):
    program = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    out = tmp_path / "$HOME; x"
    act([Command([sys.executable, "-c", program, str(out)])], finding())
    assert json.loads(out.read_text())["rule"] == "a_rule"


def test_names_are_never_part_of_the_command_line(act, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    act(["command:cat > out", Command(["cat"])], finding(tensors=(HOSTILE,)))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert json.loads((tmp_path / "out").read_text())["tensors"] == [HOSTILE]


def test_a_long_finding_still_comes_on_stdin(act, tmp_path):
    script = f'command:wc -c > {tmp_path}/size; test -z "$TORNASOLE_FINDING"'
    act([script], finding(tensors=tuple(f"{i}" * 50_000 for i in range(10))))
    assert int((tmp_path / "size").read_text()) > 500_000


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo one >&2; echo two >&2; exit 3", "ended with code 3: two"),
        (["/no/such/program"], "cannot be run"),
        (Command("sleep 60 & sleep 60", timeout=0.2), "it took more than 0.2 s"),
    ],
)
def test_a_command_that_fails_is_one_line_in_the_log(act, caplog, command, told):
    action = command if isinstance(command, Command) else Command(command)
    began = time.monotonic()
    act([action], finding())
    assert told in caplog.text
    assert time.monotonic() - began < 20


def test_nobody_waits_for_what_a_command_leaves_behind(act, tmp_path):
    began = time.monotonic()
    act([f"command:sleep 30 & echo $! > {tmp_path}/pid"], finding())
    assert time.monotonic() - began < 20
    os.kill(int((tmp_path / "pid").read_text()), 15)


# -- text messages


def test_a_text_message_without_boto3_is_one_line_in_the_log(act, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "boto3", None)
    act(["sms:+15551234567"], finding())
    assert "SMS for a_rule at step 1 (TRAIN 1) was not done" in caplog.text
    assert "pip install boto3" in caplog.text


@pytest.fixture
def amazon(monkeypatch):
    """Amazon's library, as far as it is used: it notes the calls."""
    calls = []

    class Client:
        def __getattr__(self, name):
            def call(**arguments):
                calls.append((name, arguments))
                return {"TopicArn": "arn:topic"}

            return call

    errors = SimpleNamespace(BotoCoreError=RuntimeError, ClientError=RuntimeError)
    fake = SimpleNamespace(client=lambda service, region_name: Client(), __spec__=None)
    monkeypatch.setitem(sys.modules, "boto3", fake)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", errors)
    monkeypatch.setitem(sys.modules, "botocore", SimpleNamespace(exceptions=errors))
    return calls


def test_a_text_message_goes_through_the_topic_of_smdebug(act, amazon):
    act([SMS("+15551234567")], finding())
    (_, topic), (_, subscription), (_, message) = amazon
    assert topic == {"Name": "SMDebugRules"}
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("sms", "+15551234567")
    assert "a_rule" in message["Message"]


def test_an_email_goes_through_amazon_where_no_server_is_known(act, amazon):
    act([Email("me@example.org")], finding())
    assert amazon[1][1]["Protocol"] == "email"


# -- names


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("stop", StopTraining),
        ("webhook:https://example.org/x?a=b:c", Webhook),
        ("email:me@example.org", Email),
        ("command:./notify.sh --to me", Command),
        ("sms:+15551234567", SMS),
    ],
)
def test_actions_have_names(text, kind):
    assert type(load_action(text)) is kind
    assert load_action(text, at="critical").at is Severity.CRITICAL


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stpo", "There is no action 'stpo'.*Did you mean 'stop'"),
        ("webhok:https://x.org", "Did you mean 'webhook'"),
        ("email", "write email:me@example.org"),
        ("stop:now", "nothing after its name"),
    ],
)
def test_an_action_that_does_not_exist_says_which_do(text, told):
    with pytest.raises(SMDebugValueError, match=told):
        load_action(text)


def test_a_severity_that_does_not_exist_says_which_do():
    with pytest.raises(SMDebugValueError, match="Did you mean 'critical'"):
        StopTraining(at="crtical")


@pytest.mark.parametrize("what", [None, 3, StopTraining])
def test_what_is_no_action_is_refused(what):
    with pytest.raises(SMDebugTypeError, match="An action is"):
        load_action(what)


def test_actions_are_made_as_scripts_for_sagemaker_make_them():
    actions = ActionList(StopTraining("my-job"), Email("me@example.org"), SMS("+15551234567"))
    assert [type(each).__name__ for each in actions] == ["StopTraining", "Email", "SMS"]


def test_a_rule_that_is_told_to_stop_training_does(tmp_path):
    now, steps = time.time(), 0
    every = tornasole.SaveConfig(save_interval=1)
    hook = tornasole.Hook(tmp_path / "job", save_config=every)
    attach(hook, ["stalled_training_rule:threshold=10:stop_training_on_fire=true"])
    with pytest.raises(TrainingStopped, match="stalled_training_rule"):
        for steps in range(8):
            hook.begin_step()
            hook.save_scalar("x", 1.0, timestamp=now + (100 if steps > 2 else 0))
    assert steps <= 5
