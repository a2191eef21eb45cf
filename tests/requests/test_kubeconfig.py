"""A kubeconfig is understood whole or refused by name; an anonymous request is always someone's choice."""

from __future__ import annotations

import base64
import json

import pytest
import yaml

from dispatch_kubeflow.backend.requests import AccessProblem, ClusterAccess, Door, Request, load, load_access
from dispatch_kubeflow.backend.requests.access import environment_proxy
from dispatch_kubeflow.backend.requests.exec_plugin import ExecToken
from dispatch_kubeflow.backend.requests.kubeconfig import from_pod
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.backend.requests.tokens import Broken, FileToken, Fixed, TokenFailed
from dispatch_kubeflow.machine.context import Context, SystemClock
from dispatch_kubeflow.machine.errors import ErrInvalid
from dispatch_kubeflow.machine.rules import rulebook

REQUEST = Request("GET", TRAIN_JOBS, "team-a", "a-1")


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def write(tmp_path):
    """Writes a kubeconfig of one cluster and one user."""

    def written(user: object = None, cluster: object = None, *, name: str = "config", **more: object) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
            **more,
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return written


def problem(path: str, **more: object) -> str:
    with pytest.raises(AccessProblem) as raised:
        load(kubeconfig=path, **more)
    return str(raised.value)


def authorization(access: ClusterAccess) -> str | None:
    from dispatch_kubeflow.backend.requests.call import Call

    return access.source.credential(Call(Context.background(), 5)).authorization


def test_a_token_is_read(write):
    access = load(kubeconfig=write())
    assert access.server == "https://127.0.0.1:6443"
    assert authorization(access) == "Bearer t"


def test_relative_paths_start_at_the_file_that_has_them(write, tmp_path, certificates):
    (tmp_path / "ca.pem").write_text(certificates.authority)
    (tmp_path / "token").write_text("from-file")
    access = load(kubeconfig=write({"tokenFile": "token"}, {"certificate-authority": "ca.pem"}))
    assert access.trust.authorities == certificates.authority
    assert isinstance(access.source, FileToken)
    assert authorization(access) == "Bearer from-file"


HALF = "\ud800"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"username": HALF, "password": "b"}, "users[u].user.username or password cannot be sent"),
        ({"username": "a", "password": HALF}, "users[u].user.username or password cannot be sent"),
        ({"client-certificate-data": HALF, "client-key-data": "eA=="}, "client-certificate-data is not PEM in base64"),
        ({"client-certificate": HALF, "client-key": "k"}, "client-certificate is not PEM"),
        ({"client-certificate": "a\0b", "client-key": "k"}, "client-certificate is not PEM"),
        ({"client-certificate": "~nobody-at-all/c", "client-key": "k"}, "client-certificate cannot be read"),
    ],
)
def test_a_user_that_no_request_could_show_is_refused(tmp_path, write, user, said):
    path = write()
    document = yaml.safe_load((tmp_path / "config").read_text())
    document["users"][0]["user"] = user
    (tmp_path / "config").write_text(json.dumps(document))
    shown = problem(path)
    assert said in shown
    assert HALF not in shown


@pytest.mark.parametrize("cluster", [{"server": f"https://{HALF}"}, {"proxy-url": f"http://u:{HALF}@proxy:1"}])
def test_an_address_that_is_not_unicode_is_refused(tmp_path, write, cluster):
    path = write()
    document = yaml.safe_load((tmp_path / "config").read_text())
    document["clusters"][0]["cluster"].update(cluster)
    (tmp_path / "config").write_text(json.dumps(document))
    assert "must be a URL" in problem(path)


@pytest.mark.parametrize("name", [HALF, "a\0b"])
def test_a_token_file_that_can_have_no_such_name_gives_no_token(tmp_path, name):
    with pytest.raises(TokenFailed, match="not that of any file"):
        authorization(ClusterAccess("https://127.0.0.1:1", FileToken(tmp_path / name)))


def test_a_kubeconfig_in_a_home_that_is_not_there_is_refused():
    assert "there is no such file" in problem("~nobody-at-all/config")


def test_a_token_file_goes_before_a_token(write, tmp_path):
    (tmp_path / "token").write_text("from-file")
    assert authorization(load(kubeconfig=write({"tokenFile": "token", "token": "old"}))) == "Bearer from-file"


def test_several_files_are_merged_the_first_wins(write, monkeypatch):
    first = write({"token": "first"}, name="first")
    second = write({"token": "second"}, name="second")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:/nowhere/config")
    assert authorization(load()) == "Bearer first"


def test_trap_kubeconfig_of_the_environment_is_read_when_it_is_needed(write, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", write({"token": "later"}))
    assert authorization(load()) == "Bearer later"


def test_a_context_can_be_chosen(write):
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "there", "context": {"cluster": "c", "user": "v"}},
    ]
    users = [{"name": "u", "user": {"token": "u"}}, {"name": "v", "user": {"token": "v"}}]
    path = write(contexts=contexts, users=users)
    assert authorization(load(kubeconfig=path, context="there")) == "Bearer v"
    assert "is not in the kubeconfig" in problem(path, context="nowhere")


@pytest.mark.parametrize("users", [None, [], [{"name": "other", "user": {"token": "t"}}]])
def test_trap_a_context_that_names_an_unknown_user_is_not_anonymous(write, users):
    access = load(kubeconfig=write(users=users))
    assert isinstance(access.source, Broken)


@pytest.mark.parametrize("user", [{"token": ""}, {"token": None}, {"token": "a\nb"}, {"tokenFile": ""}])
def test_trap_a_blank_token_is_not_anonymous(write, user):
    assert isinstance(load(kubeconfig=write(user)).source, Broken)


@pytest.mark.parametrize("user", [{}, {"extensions": []}])
def test_a_user_without_credentials_is_a_choice(write, user):
    access = load(kubeconfig=write(user))
    assert isinstance(access.source, Fixed)
    assert authorization(access) is None


def test_a_context_without_a_user_is_a_choice(write):
    access = load(kubeconfig=write(contexts=[{"name": "here", "context": {"cluster": "c"}}]))
    assert authorization(access) is None


@pytest.mark.parametrize("provider", ["oidc", "gcp", "azure", "unheard-of"])
def test_trap_auth_providers_are_refused_by_name(write, provider):
    said = problem(write({"auth-provider": {"name": provider, "config": {"id-token": "secret-token"}}}))
    assert provider in said
    assert "secret-token" not in said


def test_an_auth_provider_that_is_no_mapping_is_refused(write):
    assert "auth-provider" in problem(write({"auth-provider": "oidc"}))


EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "aws",
    "args": ["token"],
    "interactiveMode": "Never",
}


def test_a_plugin_is_read_with_all_it_is_told(write, tmp_path, certificates):
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    cluster = {"certificate-authority-data": data(certificates.authority), "extensions": extensions}
    env = [{"name": "A", "value": "b"}]
    source = load(kubeconfig=write({"exec": {**EXEC, "env": env, "provideClusterInfo": True}}, cluster)).source
    assert isinstance(source, ExecToken)
    plugin = source._plugin
    assert (plugin.command, plugin.args, plugin.env) == ("aws", ("token",), {"A": "b"})
    assert plugin.cluster == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": data(certificates.authority),
        "config": {"audience": "a"},
    }
    relative = load(kubeconfig=write({"exec": {**EXEC, "command": "./bin/plugin"}})).source
    assert isinstance(relative, ExecToken)
    assert relative._plugin.command == str(tmp_path / "bin/plugin")
    assert relative._plugin.cluster is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("apiVersion", "client.authentication.k8s.io/v1alpha1"),
        ("apiVersion", None),
        ("command", ""),
        ("command", 7),
        ("interactiveMode", "Always"),
        ("args", "token"),
        ("args", [1]),
        ("env", "A=b"),
        ("env", [{"name": "A"}]),
    ],
)
def test_a_plugin_that_could_never_work_is_refused(write, key, value):
    assert f"exec.{key}" in problem(write({"exec": {**EXEC, key: value}}))


def test_exec_that_is_no_mapping_is_refused(write):
    assert "exec" in problem(write({"exec": "aws"}))


def test_a_name_and_password_are_read(write):
    assert authorization(load(kubeconfig=write({"username": "me", "password": "p"}))) == "Basic bWU6cA=="
    for user in ({"username": "me"}, {"password": "p"}, {"username": "a:b", "password": "p"}):
        assert "username" in problem(write(user))


def test_a_credential_that_is_not_known_is_refused(write):
    assert "someThing" in problem(write({"someThing": 1}))


def test_trap_impersonation_is_sent_and_not_left_out(write, plain, upstream):
    user = {"token": "t", "as": "bob", "as-uid": "7", "as-groups": ["g", "h"]}
    access = load(kubeconfig=write(user, {"server": plain.url}))
    door = Door(access, request_timeout=5, clock=SystemClock())
    door.send(REQUEST, Context.with_timeout(5), operation="find")
    sent = upstream.asked[0].headers
    assert (sent["impersonate-user"], sent["impersonate-uid"], sent["impersonate-group"]) == ("bob", "7", "h")
    door.close()


@pytest.mark.parametrize(
    "more", [{"as-user-extra": {"a": ["b"]}}, {"as-groups": ["g"]}, {"as-groups": "g"}, {"as": "a\nb"}, {"as": 7}]
)
def test_impersonation_that_cannot_be_sent_is_refused(write, more):
    assert "as" in problem(write({"token": "t", **more}))


def test_a_client_certificate_is_a_credential(write, upstream, certificates):
    from .proxy import FaultProxy

    proxy = FaultProxy(upstream, certificates.server_context(client_wanted=True))
    certificate, key = certificates.client
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    access = load(
        kubeconfig=write(user, {"server": proxy.url, "certificate-authority-data": data(certificates.authority)})
    )
    door = Door(access, request_timeout=5, clock=SystemClock())
    assert door.send(REQUEST, Context.with_timeout(5), operation="find").failure is None
    door.close()
    proxy.close()


def encrypted(key: str) -> str:
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key.encode(), None)
    how = serialization.BestAvailableEncryption(b"password")
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how).decode()


def test_trap_certificates_of_no_use_are_found_at_once(write, tmp_path, certificates):
    certificate, key = certificates.client
    _, other = certificates.server
    (tmp_path / "junk.pem").write_text("junk")
    (tmp_path / "binary.pem").write_bytes(b"\xff\xfe\x00")
    pair = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    for user, word in [
        ({**pair, "client-key-data": data(other)}, "client-certificate"),
        ({**pair, "client-key-data": data(encrypted(key))}, "client-certificate"),
        ({**pair, "client-key-data": "not base64!"}, "client-key-data"),
        ({"client-certificate-data": data(certificate)}, "client-key"),
        ({"client-key-data": data(key)}, "client-certificate"),
        ({**pair, "client-key-data": None, "client-key": "absent.pem"}, "client-key"),
        ({**pair, "client-key-data": None, "client-key": "junk.pem"}, "client-certificate"),
    ]:
        assert word in problem(write(user))
    for cluster in [
        {"certificate-authority": "absent.pem"},
        {"certificate-authority": "junk.pem"},
        {"certificate-authority": "binary.pem"},
        {"certificate-authority": str(tmp_path)},
        {"certificate-authority-data": "not base64!"},
        {"certificate-authority-data": data("junk")},
        {"certificate-authority-data": 7},
    ]:
        assert "certificate-authority" in problem(write(None, cluster))


def test_trap_no_key_material_is_left_on_disk(write, certificates, tmp_path, monkeypatch):
    import tempfile

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    certificate, key = certificates.client
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    load(kubeconfig=write(user, {"certificate-authority-data": data(certificates.authority)}))
    assert list(folder.iterdir()) == []


def test_skipping_verification_is_taken_at_its_word(write, certificates):
    assert load(kubeconfig=write(None, {"insecure-skip-tls-verify": True})).trust.verify is False
    both = {"insecure-skip-tls-verify": True, "certificate-authority-data": data(certificates.authority)}
    assert "insecure-skip-tls-verify" in problem(write(None, both))
    assert "insecure-skip-tls-verify" in problem(write(None, {"insecure-skip-tls-verify": "yes"}))


@pytest.mark.parametrize(
    "server",
    [
        "",
        "127.0.0.1:6443",
        "ftp://host",
        "https://",
        "https://[::1",
        "https://host?x=1",
        "https://user@host",
        "https://host:99999",
        "https://ho st",
        None,
        7,
    ],
)
def test_trap_a_server_that_is_no_url_is_refused(write, server):
    assert "server" in problem(write(None, {"server": server}))


def test_a_server_may_have_a_path(write):
    access = load(kubeconfig=write(None, {"server": "https://host:8443/k8s/clusters/c-1/"}))
    assert (access.host, access.base) == ("host:8443", "/k8s/clusters/c-1")


DOCUMENTS = ["", "[]", "text", "a: [", "{", "\0", "contexts: 7", "current-context: x\ncontexts: {}", "- a\n- b",
             "current-context: c\ncontexts: [{name: c, context: 7}]", "current-context: c\ncontexts: [{nam: c}]",
             "current-context: c\ncontexts: [{name: c, context: {cluster: x}}]\nclusters: [{name: x, cluster: 7}]",
             "current-context: c\ncontexts: [{name: c, context: {cluster: x}}]\nclusters: null",
             "contexts: []", "current-context: [a]\ncontexts: [{name: c, context: {}}]"]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS)
def test_trap_whatever_is_wrong_with_a_kubeconfig_is_one_kind_of_problem(tmp_path, document):
    path = tmp_path / "config"
    path.write_text(document)
    problem(str(path))


def test_what_stands_in_a_broken_kubeconfig_is_not_quoted(tmp_path):
    path = tmp_path / "config"
    path.write_text("users:\n- name: u\n  user: {token: secret-token\n")
    said = problem(str(path))
    assert "secret-token" not in said
    assert "line" in said


def test_a_kubeconfig_that_is_a_folder_or_absent_is_refused(tmp_path):
    problem(str(tmp_path))
    assert "no such file" in problem(str(tmp_path / "absent"))


def test_without_a_kubeconfig_a_pod_uses_its_service_account(tmp_path, certificates, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(AccessProblem, match="no such file"):
        load()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(AccessProblem, match="service account"):
        load()
    with pytest.raises(AccessProblem, match="service account"):
        load(in_cluster=True)
    token, authorities = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("pod-token\n")
    authorities.write_text(certificates.authority)
    access = from_pod(str(token), str(authorities))
    assert access.server == "https://10.0.0.1:443"
    assert authorization(access) == "Bearer pod-token"
    token.write_text("rotated\n")
    assert authorization(access) == "Bearer rotated"
    authorities.write_text("junk")
    with pytest.raises(AccessProblem, match="service account"):
        from_pod(str(token), str(authorities))


def test_a_configuration_of_no_use_is_raised_as_the_tables_have_it(tmp_path, write):
    with pytest.raises(ErrInvalid) as raised:
        load_access(book=rulebook(), kubeconfig=str(tmp_path / "absent"))
    assert raised.value.row == "input.kubeconfig"
    assert isinstance(raised.value.__cause__, AccessProblem)
    assert load_access(book=rulebook(), kubeconfig=write()).server == "https://127.0.0.1:6443"


def test_proxies_come_from_the_kubeconfig_then_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://env:3128")
    remote = {"server": "https://cluster.example"}
    assert load(kubeconfig=write(None, remote)).proxy == "http://env:3128"
    assert load(kubeconfig=write(None, {**remote, "proxy-url": "http://own:3128"})).proxy == "http://own:3128"
    monkeypatch.setenv("NO_PROXY", ".example,10.0.0.0/8")
    assert load(kubeconfig=write(None, remote)).proxy is None
    assert load(kubeconfig=write(None, {"server": "https://10.1.2.3"})).proxy is None
    assert load(kubeconfig=write(None, {"server": "https://11.1.2.3"})).proxy == "http://env:3128"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST.", "a.localhost", "[::1]"])
def test_trap_a_proxy_of_the_environment_is_never_used_for_loopback(monkeypatch, host):
    monkeypatch.setenv("HTTPS_PROXY", "http://env:3128")
    monkeypatch.setenv("ALL_PROXY", "http://env:3128")
    assert environment_proxy(f"https://{host}:6443") is None


def test_a_proxy_of_the_environment_may_lack_its_scheme(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "env:3128")
    assert environment_proxy("https://cluster.example") == "http://env:3128"


@pytest.mark.parametrize("proxy", ["socks5://host:1080", "http://", "http://[::1", "http://a b"])
def test_trap_a_proxy_of_no_use_is_refused_with_its_password_left_out(write, proxy):
    said = problem(write(None, {"server": "https://cluster.example", "proxy-url": proxy}))
    assert "proxy-url" in said
    assert "secret" not in problem(
        write(None, {"server": "https://cluster.example", "proxy-url": "socks5://me:secret@host"})
    )


def test_loading_is_all_that_imports_the_official_client():
    import subprocess
    import sys

    code = (
        "import sys, json; import dispatch_kubeflow.backend.requests as r;"
        "print(json.dumps([m for m in ('kubernetes', 'urllib3', 'yaml') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


def test_trap_a_pods_token_that_vanishes_or_empties_sends_nothing(tmp_path, certificates, plain, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plain.port))
    token, authorities = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("pod-token\n")
    authorities.write_text(certificates.authority)
    door = Door(from_pod(str(token), str(authorities)), request_timeout=5, clock=SystemClock())
    for vanish in (lambda: token.write_text(""), token.unlink):
        vanish()
        failure = door.send(REQUEST, Context.with_timeout(5), operation="find").failure
        assert failure is not None
        assert (failure.result, failure.sent) == ("token-failed", False)
    assert plain.connections == []
    door.close()


def test_trap_a_certificate_for_a_server_without_tls_is_refused(write, certificates):
    certificate, key = certificates.client
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    assert "without TLS" in problem(write(user, {"server": "http://127.0.0.1:8080"}))


def test_trap_discovery_is_one_request_and_keeps_nothing(plain, upstream, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    door = Door(ClusterAccess.at(plain.url), request_timeout=5, clock=SystemClock())
    upstream.status = 404
    for _ in range(2):
        failure = door.discover("nowhere.io", "v1", Context.with_timeout(5), operation="factory").failure
        assert failure is not None
        assert failure.result == "404"
    assert len(upstream.asked) == 2
    assert list(tmp_path.iterdir()) == []
    door.close()
