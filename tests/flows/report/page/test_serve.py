"""The server of the live page: who may ask, what it answers, and that there is nothing else."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import pytest

from dovetail.flows import cli
from dovetail.flows.commands import serve
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.report.page import live
from dovetail.flows.report.page import server as server_module
from dovetail.flows.report.page.live import Live
from dovetail.flows.report.page.server import Server
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from tests.flows.report.page.growing import Growing, served
from tests.flows.report.page.synthetic import cost_of

SPACE = Space((Workload("zoo:mobilenet_v2_block"),), Config(), {"bus": (32, 64, 128)}, objectives=("cycles", "pe"))


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    with Growing(tmp_path / "results.sqlite", SPACE, cost_of) as store:
        store.put([0, 2])
        yield store


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def rows(server: Server, after: int = 0, session: str = "") -> Any:
    status, _, text = ask(server, f"/rows?after={after}&session={session}")
    assert status == 200
    return json.loads(text)


def test_it_listens_on_this_machine_only_by_default() -> None:
    args = cli.parser().parse_args(["serve", "x.sqlite"])
    assert (args.host, args.port) == ("127.0.0.1", serve.PORT)


def test_the_page_and_its_policy(server: Server) -> None:
    status, headers, text = ask(server, "/")
    assert status == 200
    assert "mobilenet_v2_block" in text
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "python" not in headers["server"].lower()


def test_only_rows_that_are_new(server: Server, growing: Growing) -> None:
    first = rows(server)
    assert [row[0] for row in first["rows"]] == [0, 2]
    assert first["header"]["objectives"] == ["cycles", "pe"]
    growing.put([1])
    then = rows(server, 2, first["session"])
    assert [row[0] for row in then["rows"]] == [1]
    assert then["after"] == 3
    assert "header" not in then
    assert not then["finished"]
    growing.finish()
    assert rows(server, 3, first["session"])["finished"]


def test_a_lost_point_that_is_priced_after_all_comes_again(server: Server, growing: Growing) -> None:
    growing.lose(1)
    lost = rows(server)
    assert [row[1] for row in lost["rows"]] == ["", "", "the worker ended"]  # in the order in which they came
    growing.put([1])
    then = rows(server, lost["after"], lost["session"])
    assert [(row[0], row[1]) for row in then["rows"]] == [(1, "")]


def test_a_page_of_an_earlier_server_starts_again(server: Server) -> None:
    again = rows(server, 2, "another")
    assert len(again["rows"]) == 2
    assert "header" in again
    assert len(rows(server, 99, again["session"])["rows"]) == 2


def test_a_later_sweep_takes_over(server: Server, growing: Growing) -> None:
    first = rows(server)
    growing.close()
    with Growing(growing.path, SPACE, cost_of) as later:
        later.put([1])
        then = rows(server, 2, first["session"])
        assert then["session"] != first["session"]
        assert [row[0] for row in then["rows"]] == [1]


def test_a_name_that_somebody_else_chose_is_refused(server: Server) -> None:
    for host in ("evil.example", "evil.example:80", "", "[::1", "127.0.0.1.evil.example"):
        for path in ("/", "/rows", "/explain?point=0"):
            status, _, text = ask(server, path, Host=host)
            assert status in (400, 403), host
            assert "cycles" not in text


def test_names_of_this_machine_are_accepted(server: Server) -> None:
    for host in ("localhost", "localhost:8642", "127.0.0.1", "[::1]:8642"):
        assert ask(server, "/rows", Host=host)[0] == 200


def test_other_sites_get_no_data(server: Server) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(server, "/rows", Sec_Fetch_Site=site)[0] == 403
        assert ask(server, "/explain?point=0", Sec_Fetch_Site=site)[0] == 403
    assert ask(server, "/", Sec_Fetch_Site="cross-site")[0] == 200  # a link to the page


def test_there_are_no_files(server: Server) -> None:
    for path in ("/page.html", "/../results.sqlite", "/%2e%2e/results.sqlite", "//etc/passwd", "/rows/", "/rows/../x"):
        assert ask(server, path)[0] == 404, path


def test_there_is_nothing_to_write(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(server, "/rows", method)[0] == 501


def test_what_cannot_be_answered(server: Server) -> None:
    errors = {
        "/explain?point=7": "point must be one with a cost, not 7",
        "/explain?point=-1": "point must be a number, not '-1'",
        "/explain?point=<b>": "point must be a number, not '<b>'",
        "/rows?after=x": "after must be a number, not 'x'",
    }
    for path, error in errors.items():
        status, headers, text = ask(server, path)
        assert status == 400
        assert headers["content-type"].startswith("application/json")
        assert json.loads(text) == {"error": error}


def test_explanations_are_made_one_by_one_and_only_so_many_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, made = Event(), []

    def slowly(space: Space, config: Config) -> list[dict[str, Any]]:
        made.append(config.bus)
        go.wait(20)
        return [{"cycles": config.bus}]

    monkeypatch.setattr(live, "explain_point", slowly)
    answers: Queue[int] = Queue()

    def click() -> None:
        answers.put(ask(server, "/explain?point=0")[0])

    clicks = [Thread(target=click) for _ in range(live.WAITING + 2)]
    for thread in clicks:
        thread.start()
    assert [answers.get(timeout=20) for _ in range(2)] == [503, 503]
    assert made == [32]
    go.set()
    assert [answers.get(timeout=20) for _ in range(live.WAITING)] == [200] * live.WAITING
    for thread in clicks:
        thread.join()
    assert made == [32]  # the others were told what is remembered
    assert json.loads(ask(server, "/explain?point=2")[2]) == [{"cycles": 128}]
    assert made == [32, 128]


def test_only_real_errors_are_reported(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError("reader has gone"), TimeoutError("reader is asleep"), ValueError("bug")):
        try:
            raise error
        except Exception:
            server.handle_error(None, None)
    shown = capsys.readouterr().err
    assert "ValueError: bug" in shown
    assert "reader" not in shown


def test_a_taken_port_is_named(growing: Growing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Store(growing.path) as store:
        port = taken.getsockname()[1]
        with pytest.raises(
            DovetailError, match=rf"^port {port} of 127\.0\.0\.1 must be free .* give another by --port"
        ):
            Server(Live(store), "127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("nowhere.invalid", 0), ("203.0.113.1", 0)])
def test_a_place_where_nobody_can_listen(growing: Growing, host: str, port: int) -> None:
    with Store(growing.path) as store, pytest.raises(DovetailError, match="must be free to listen at"):
        Server(Live(store), host, port)


def test_a_port_that_is_none(growing: Growing) -> None:
    with Store(growing.path) as store, pytest.raises(DovetailError, match=r"^port must be 0\.\.65535, not 70000$"):
        Server(Live(store), "127.0.0.1", 70000)


def test_the_command_without_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", str(tmp_path / "none.sqlite")]) == 2
    assert "store must be a file, there is none" in capsys.readouterr().err


def test_the_command_runs_until_it_is_interrupted(
    growing: Growing, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    assert cli.main(["serve", str(growing.path), "--port", "0", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["url"].startswith("http://127.0.0.1:")
    assert "Ctrl-C ends" in shown.err


def raw(server: Server, request: bytes) -> bytes:
    """Whatever is answered to these bytes until the connection ends."""
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    "request_line", [b"NONSENSE", b"GET / HTTP/9.9", b"PUT / HTTP/1.1", b"GET /" + b"x" * 70_000 + b" HTTP/1.1"]
)
def test_error_pages_carry_the_policy(server: Server, request_line: bytes) -> None:
    answer = raw(server, request_line + b"\r\nHost: localhost\r\n\r\n")
    assert b"Content-Security-Policy: default-src 'none'" in answer
    assert b"X-Content-Type-Options: nosniff" in answer
    assert b"<" not in answer.partition(b"\r\n\r\n")[2]


def test_head_is_get_without_the_body(server: Server) -> None:
    for path in ("/", "/nothing", "/rows"):
        status, headers, text = ask(server, path, "HEAD")
        assert text == ""
        wanted, _, body = ask(server, path)
        assert status == wanted
        if path != "/rows":  # which has the time in it
            assert int(headers["content-length"]) == len(body.encode())


def test_a_request_that_never_ends_is_ended(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "DEADLINE", 0.5)
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(200):  # a header every now and then would do for a deadline of each read
            try:
                connection.sendall(b"X: y\r\n")
                if connection.recv(1, socket.MSG_DONTWAIT) == b"":
                    break
            except BlockingIOError:
                pass
            except OSError:
                break
            Event().wait(0.05)
        else:
            pytest.fail("the connection is still open")
    assert ask(server, "/")[0] == 200


def test_more_connections_than_places(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 3)
    with served(growing.path) as running:
        idle = [socket.create_connection(("127.0.0.1", running.server_address[1]), timeout=20) for _ in range(3)]
        try:
            while running._places._value:  # until all three have been taken in
                Event().wait(0.01)
            answer = raw(running, b"")
            assert answer.startswith(b"HTTP/1.0 503 ")
            assert b"nosniff" in answer
        finally:
            for connection in idle:
                connection.close()
        while running._places._value < 3:
            Event().wait(0.01)
        assert ask(running, "/")[0] == 200
