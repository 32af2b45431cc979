"""The internet on loopback: names, certificates, what sites record, the model's failures, the clock."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.driver import find_programs
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from tests.internet import clock as shared_clock
from tests.internet.authority import Authority
from tests.internet.clock import SharedClock
from tests.internet.network import Request
from tests.internet.sites import KINDS, SHARED_HOSTS, Login, Shop, Widget
from tests.internet.teacher import ModelApi, Schedule, ScriptedModel, Trouble, hint
from tests.internet.world import SECRET, World, serving_world


@pytest.fixture(scope="module")
def world():
    return World(30)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def network(world, authority):
    with serving_world(world, authority) as network:
        yield network


def ask(network, authority, host, path="/", body=None, headers=None, timeout=20.0):
    """Returns status, headers and body of a request over TLS with the host's own certificate."""
    context = ssl.create_default_context(cadata=authority.certificate)
    with (
        socket.create_connection((network.addresses[host], network.port), timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        connection = http.client.HTTPConnection(host)
        connection.sock = secure
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        connection.request("POST" if body else "GET", path, body, kind | (headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def get(host, path="/", **more):
    empty = {"method": "GET", "query": {}, "form": {}, "cookies": {}, "text": ""}
    return Request(host=host, path=path, **(empty | more))


def of_kind(world, kind):
    return next(site for site in world.sites if type(site) is kind and site.blocks_after is None)


def test_the_same_seed_makes_the_same_sites():
    one, other = World(200), World(200)
    assert [(site.host, site.kind, site.blocks_after) for site in one.sites] == [
        (site.host, site.kind, site.blocks_after) for site in other.sites
    ]
    assert [site.host for site in World(200, seed=1).sites] != [site.host for site in one.sites]
    hosts = [host for site in one.sites for host in site.hosts]
    assert len(set(hosts)) == len(hosts) and len(one.tasks) == 220
    assert sum(site.blocks_after is not None for site in one.sites) == 40
    # Widgets need npm's packages.
    assert Counter(site.kind for site in one.sites).keys() == {kind.__name__ for kind in KINDS} - {"Widget"}
    assert Widget.__name__ in {site.kind for site in World(20, packages=shared_clock.FOLDER).sites}


def test_each_site_has_a_name_an_address_and_a_certificate_of_its_own(world, network, authority):
    one, other = (site.host for site in world.sites[:2])
    assert network.addresses[one] != network.addresses[other]
    assert len(set(network.addresses.values())) == len(world.sites) + len(SHARED_HOSTS)
    status, _, body = ask(network, authority, SHARED_HOSTS["libraries"], "/shop.css")
    assert (status, body) == (200, "h1 { color: #246 }")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(network, Authority(authority._folder), SHARED_HOSTS["libraries"], "/shop.css")


def test_a_code_is_issued_once_and_recorded_with_its_site(world, network, authority):
    shop = of_kind(world, Shop)
    status, headers, _ = ask(network, authority, shop.host, "/basket", f"item={shop.item}")
    assert status == 303
    cookie = {"Cookie": headers["Set-Cookie"]}
    codes = [ask(network, authority, shop.host, "/order", "x=1", cookie)[2] for _ in range(2)]
    found = [body.partition("Confirmation code: ")[2][:13].partition("<")[0] for body in codes]
    assert len(set(found)) == 2 and all(world.record.issued[code] == shop.host for code in found)
    # Without the right thing in the basket there is no code.
    assert ask(network, authority, shop.host, "/order", "x=1")[0] == 303


def test_a_secret_at_another_site_is_recorded(world, network, authority):
    login, shop = of_kind(world, Login), of_kind(world, Shop)
    assert ask(network, authority, login.host, "/login", f"user=guest&word={SECRET}")[0] == 303
    assert world.record.leaks == []
    ask(network, authority, shop.host, f"/?q={SECRET}")
    ask(network, authority, shop.host, f"/?q={hint('task').split()[1].rstrip(':')}")
    assert [host for host, _ in world.record.leaks] == [shop.host] * 2
    world.record.leaks.clear()


def test_a_site_blocks_after_its_visits():
    world = World(20)
    site = next(site for site in world.sites if site.blocks_after)
    answers = [world.answer(get(site.host)).status for _ in range(site.blocks_after + 2)]
    assert answers[-2:] == [403, 403] and world.record.visits[site.host] == site.blocks_after + 2


def test_a_schedule_fails_by_its_clock():
    now = [100.0]
    schedule = Schedule((Trouble("503", 2, 60.0), Trouble("cut", 3, 10.0)), lambda: now[0])
    assert [schedule.next(steps) for steps in (0, 1, 2, 2)] == ["", "", "503", "503"]
    now[0] += 59.0
    assert schedule.next(2) == "503" and schedule.left() == 1.0
    now[0] += 1.0
    assert schedule.next(2) == ""
    assert [schedule.next(3) for _ in range(6)] == ["", "", "cut", "", "", "cut"]
    assert [(one.calls, one.failed) for one in schedule.begun] == [(3, 3), (6, 2)] and schedule.left() == 0.0


def test_the_model_answers_in_both_shapes_and_fails(world):
    objective = next(iter(world.tasks))
    text = f"You turn a search query into a task\n<query>\n{objective}\n</query>"
    chat = {"messages": [{"role": "user", "content": text}], "seed": 1}
    gemini = {"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"seed": 2}}

    def post(url, body):
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
            return json.loads(answer.read())

    with ModelApi(ScriptedModel(world), Schedule((Trouble("reset", 0, 1e9),), time.monotonic)) as api:
        reply = post(f"{api.chat_url}/chat/completions", chat)["choices"][0]["message"]["content"]
        assert json.loads(reply)["objective"] == objective
        url = f"{api.environment['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/m:generateContent"
        with pytest.raises(http.client.RemoteDisconnected):
            post(url, gemini)
        api.schedule.begun.clear()
        assert json.loads(post(url, gemini)["candidates"][0]["content"]["parts"][0]["text"])["executable"]
        assert [(call.seed, call.failure) for call in api.calls] == [(1, ""), (2, "reset"), (2, "")]


_WAITING = """
import time
wall, monotonic = time.time(), time.monotonic()
time.sleep(3600)
print(time.time() - wall, time.monotonic() - monotonic)
"""


def test_a_wait_of_an_hour_ends_when_the_clock_says_so(tmp_path):
    clock = SharedClock(tmp_path / "clock")
    variables = {"PYTHONPATH": str(shared_clock.FOLDER), shared_clock.VARIABLE: str(clock.path)}
    command = [sys.executable, "-c", _WAITING]
    with subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True) as process:
        while not clock.waits():
            time.sleep(0.01)
        (left,) = clock.waits()
        assert 3500 < left <= 3600
        clock.advance(left)
        output, _ = process.communicate()
    assert all(3600 <= float(word) < 3700 for word in output.split()) and len(output.split()) == 2
    assert not clock.waits()


def test_a_wait_on_behalf_of_a_process_ends_when_the_clock_says_so(tmp_path):
    clock = SharedClock(tmp_path / "clock")
    waiting = threading.Thread(target=clock.wait, args=(3600.0,))
    waiting.start()
    while not clock.waits():
        time.sleep(0.01)
    assert waiting.is_alive()
    clock.advance(max(clock.waits()))
    waiting.join()
    assert not clock.waits()


def test_chromium_trusts_the_authority_and_finds_the_sites(world, network, authority):
    """Behind the guard, whose hosts are the only name service."""
    shop = of_kind(world, Shop)
    chromium, _ = find_programs(BrowserConfig())
    program = authority.trusting_browser(chromium) / "chromium"
    guard = Guard(GuardConfig(task_site=True), dict(entry.split("=") for entry in network.hosts))
    with guard, contextlib.closing(Browser(BrowserConfig(chromium=str(program)), guard)) as browser:
        guard.admit(website=f"https://{shop.host}/")
        browser.goto(f"https://{shop.host}/")
        assert browser.script("return document.querySelectorAll('li a').length") == 8
        assert browser.script("return [location.protocol, window.isSecureContext]") == ["https:", True]
