import pytest

pytest.importorskip("starlette", reason="needs the extra `serve`")

from starlette.testclient import TestClient

from notewriter.app.application import make_app

HERE = "http://127.0.0.1:8002"


@pytest.fixture
def client():
    return TestClient(make_app([], "right", 8002), base_url=HERE, follow_redirects=False)


@pytest.fixture
def known(client):
    """A browser that has opened the address with the token."""
    assert client.get("/?token=right").status_code == 303
    return client


def test_the_token_becomes_a_cookie_and_leaves_the_address(client):
    reply = client.get("/?token=right")
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "notewriter-8002=right" in cookie
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/?token=wrong", "/?token=", "/style.css", "/judge", "/?token=%ff", "/app.js?token=right"]
)
def test_without_the_token_nothing_is_shown(client, path):
    reply = client.get(path)
    assert reply.status_code == 403 and "notewriter app" in reply.text
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("cookie", [b"wrong", "wröng".encode(), b""])
def test_a_wrong_cookie_is_refused(client, cookie):
    assert client.get("/", headers={b"cookie": b"notewriter-8002=" + cookie}).status_code == 403


def test_on_port_80_the_host_has_no_port():
    browser = TestClient(make_app([], "right", 80), base_url="http://127.0.0.1", follow_redirects=False)
    assert browser.get("/?token=right").status_code == 303


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8002", "127.0.0.1", "127.0.0.1:8003", "0.0.0.0:8002", ""]
)
def test_a_name_that_only_points_here_is_refused(known, host):
    """DNS rebinding: the browser believes that it talks to the attacker's site."""
    assert known.get("/", headers={"Host": host}).status_code == 403
    assert known.get("/?token=right", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_request_of_another_page_is_refused(known, headers):
    assert known.post("/", headers=headers).status_code == 403
    assert known.get("/", headers=headers).status_code == 403


def test_the_page_itself_may_ask(known):
    assert known.get("/", headers={"Origin": HERE, "Sec-Fetch-Site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/style.css", "/nowhere"])
def test_every_reply_says_what_browsers_may_do(known, path):
    headers = known.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_refusals_say_it_too(client):
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]
