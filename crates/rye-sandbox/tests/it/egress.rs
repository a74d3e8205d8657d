//! The network of confined commands: which connections the egress proxy allows, and that there is
//! no way around it. Each refusal is tested beside a connection that works.

mod clients;
mod server;

use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::BoxFuture;
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, Grants, NetworkAccess, Sandbox};
use rye_sandbox::{ConfinedSandbox, ConfinementPolicy, Launcher, Tier};
use serde_json::{Value, json};
use tempfile::TempDir;

use server::{Authority, FakeResolver, Server};

/// An observer that answers questions about connections, and records them.
struct Person {
    approves: bool,
    questions: Mutex<Vec<String>>,
}

impl Person {
    fn who(approves: bool) -> Self {
        Self {
            approves,
            questions: Mutex::default(),
        }
    }

    fn questions(&self) -> Vec<String> {
        self.questions.lock().unwrap().clone()
    }
}

impl ExecObserver for Person {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}

    fn approve_connection<'a>(&'a self, target: &'a str) -> BoxFuture<'a, bool> {
        self.questions.lock().unwrap().push(target.to_owned());
        Box::pin(std::future::ready(self.approves))
    }
}

/// A person who never answers.
struct Absent;

impl ExecObserver for Absent {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}

    fn approve_connection<'a>(&'a self, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(std::future::pending())
    }
}

/// A workspace with a sandbox.
struct Fixture {
    dir: TempDir,
    sandbox: ConfinedSandbox,
}

impl Fixture {
    fn new(network: &Value, resolver: Arc<FakeResolver>) -> Self {
        Self::in_tier(Tier::Full, network, resolver)
    }

    fn in_tier(tier: Tier, network: &Value, resolver: Arc<FakeResolver>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let launcher = Launcher::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"), [] as [&str; 0]);
        let supervisor = Supervisor::start().unwrap();
        let policy: ConfinementPolicy =
            serde_json::from_value(json!({ "network": network })).unwrap();
        let sandbox = ConfinedSandbox::new(dir.path(), supervisor, launcher, tier, policy).unwrap();
        let no_secrets = Arc::new(|name: &str| Err(format!("no secret {name}")));
        let sandbox = sandbox.lookups(resolver, no_secrets);
        Self { dir, sandbox }
    }

    async fn run(&self, command: &str) -> ExecOutput {
        run(&self.sandbox, command, &Person::who(false)).await
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(path), content).unwrap();
    }
}

async fn run(sandbox: &dyn Sandbox, command: &str, observer: &dyn ExecObserver) -> ExecOutput {
    let exec = Exec {
        command: command.to_owned(),
        timeout: Some(Duration::from_mins(1)),
        ..Exec::default()
    };
    sandbox.exec(exec, observer).await.unwrap()
}

/// A `curl` command that prints the status, then the body.
fn curl(url: &str) -> String {
    format!("curl -sS --max-time 20 -w ' %{{http_code}}' {url}")
}

#[tokio::test]
async fn listed_host_is_reached_and_another_is_refused() {
    let server = Server::start("127.0.0.1:0", "hello", None);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[("a.test", "127.0.0.1"), ("b.test", "127.0.0.1")]);
    let network = json!({
        "allow": [format!("a.test:{port}")],
        "ask": false,
        "private": [server.address],
    });
    let fixture = Fixture::new(&network, Arc::clone(&resolver));
    assert_eq!(
        fixture.sandbox.confinement().network,
        NetworkAccess::Proxied
    );
    assert!(fixture.sandbox.confinement().confines_commands());

    let output = fixture.run(&curl(&format!("http://a.test:{port}/x"))).await;
    assert_eq!(output.stdout, "hello 200", "{output:?}");
    assert!(output.refused_connections.is_empty());
    let request = server.requests().remove(0);
    assert!(request.starts_with("GET /x HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("a.test:{port}")), "{request}");

    let output = fixture.run(&curl(&format!("http://b.test:{port}/"))).await;
    assert!(output.stdout.ends_with(" 403"), "{output:?}");
    assert_eq!(output.refused_connections.len(), 1, "{output:?}");
    assert!(output.refused_connections[0].starts_with(&format!("b.test:{port}: ")));
    assert_eq!(
        *resolver.lookups.lock().unwrap(),
        ["a.test"],
        "b.test is not even resolved"
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn review_mode_has_the_same_network() {
    let server = Server::start("127.0.0.1:0", "hello", None);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[("a.test", "127.0.0.1"), ("b.test", "127.0.0.1")]);
    let network = json!({ "allow": [format!("a.test:{port}")], "private": [server.address] });
    let state = tempfile::tempdir().unwrap();
    let Fixture { dir, sandbox } = Fixture::new(&network, resolver);
    let sandbox = sandbox.with_review(state.path()).unwrap();
    let person = Person::who(true);
    let get = |host: &str| format!("{} >{host}", curl(&format!("http://{host}.test:{port}/")));
    for host in ["a", "b"] {
        run(&sandbox, &get(host), &person).await;
        assert_eq!(sandbox.read(host).await.unwrap(), b"hello 200", "{host}");
    }
    assert_eq!(person.questions(), [format!("b.test:{port}")]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn tls_reaches_the_server_unbroken() {
    let authority = Authority::new(&["a.test"]);
    let server = Server::start_tls("127.0.0.1:0", "secure", &authority);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[("a.test", "127.0.0.1")]);
    let network = json!({ "allow": ["a.test:*"], "private": [server.address] });
    let fixture = Fixture::new(&network, resolver);
    fixture.write("ca.pem", &authority.pem);
    let url = format!("--cacert ca.pem https://a.test:{port}/");
    let output = fixture.run(&curl(&url)).await;
    assert_eq!(output.stdout, "secure 200", "{output:?}");
    let output = fixture.run(&curl(&format!("https://a.test:{port}/"))).await;
    assert_ne!(
        output.exit_code,
        Some(0),
        "its certificate is checked inside"
    );
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let server = Server::start("127.0.0.1:0", "behind the wall", None);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[
        ("loop.test", "127.0.0.1"),
        ("mapped.test", "::ffff:127.0.0.1"),
        ("loop6.test", "::1"),
        ("metadata.test", "169.254.169.254"),
        ("private.test", "10.0.0.1"),
        ("cgnat.test", "100.64.0.1"),
        ("multicast.test", "224.0.0.1"),
        ("any.test", "0.0.0.0"),
    ]);
    let allow = json!([
        "*:*",
        "169.254.169.254:*",
        "10.0.0.1:*",
        "[::1]:*",
        "0.0.0.0:*"
    ]);
    let network = json!({ "allow": allow });
    let fixture = Fixture::new(&network, Arc::clone(&resolver));
    for host in [
        "loop.test",
        "mapped.test",
        "loop6.test",
        "metadata.test",
        "private.test",
        "cgnat.test",
        "multicast.test",
        "any.test",
        "169.254.169.254",
        "10.0.0.1",
        "0.0.0.0",
    ] {
        for method in ["", "-p"] {
            let url = format!("{method} --noproxy '' http://{host}:{port}/");
            let output = fixture.run(&curl(&url)).await;
            assert!(
                !output.stdout.contains("behind the wall"),
                "{host}: {output:?}"
            );
            assert_eq!(output.refused_connections.len(), 1, "{host}: {output:?}");
        }
    }
    assert_eq!(server.requests(), [] as [String; 0]);

    let network = json!({ "allow": allow, "private": [server.address] });
    let named = Fixture::new(&network, resolver);
    let output = named.run(&curl(&format!("http://loop.test:{port}/"))).await;
    assert_eq!(output.stdout, "behind the wall 200", "the control works");
}

#[tokio::test]
async fn connection_uses_the_address_that_was_checked() {
    let outside = Server::start("127.0.0.1:0", "outside", None);
    let port = outside.address.port();
    let internal = Server::start(&format!("127.0.0.2:{port}"), "behind the wall", None);
    let resolver = FakeResolver::new(&[]);
    resolver.answer("rebind.test", &["127.0.0.1", "127.0.0.2"]);
    let network = json!({ "allow": ["*:*"], "private": [outside.address] });
    let fixture = Fixture::new(&network, Arc::clone(&resolver));
    let command = curl(&format!("http://rebind.test:{port}/"));
    let output = fixture.run(&command).await;
    assert_eq!(output.stdout, "outside 200", "{output:?}");
    assert_eq!(resolver.lookups.lock().unwrap().len(), 1, "resolved once");
    let output = fixture.run(&command).await;
    assert!(output.stdout.ends_with(" 403"), "{output:?}");
    assert_eq!(internal.requests(), [] as [String; 0]);
}

#[tokio::test]
async fn redirection_is_checked_again() {
    let outside = Server::start("127.0.0.1:0", "outside", None);
    let port = outside.address.port();
    let internal = Server::start(&format!("127.0.0.2:{port}"), "behind the wall", None);
    let resolver = FakeResolver::new(&[
        ("a.test", "127.0.0.1"),
        ("b.test", "127.0.0.1"),
        ("internal.test", "127.0.0.2"),
    ]);
    let network = json!({ "allow": ["*:*"], "private": [outside.address] });
    let fixture = Fixture::new(&network, resolver);
    let follow = |host: &str| curl(&format!("-L http://a.test:{port}/to/http://{host}:{port}/"));
    let output = fixture.run(&follow("b.test")).await;
    assert_eq!(output.stdout, "outside 200", "{output:?}");
    for host in ["internal.test", "127.0.0.2", "127.0.0.1"] {
        let output = fixture.run(&follow(host)).await;
        assert!(
            !output.stdout.contains("behind the wall"),
            "{host}: {output:?}"
        );
        assert!(!output.stdout.ends_with("200"), "{host}: {output:?}");
    }
    assert_eq!(internal.requests(), [] as [String; 0]);
}

#[tokio::test]
async fn server_name_of_tls_must_be_the_host() {
    let authority = Authority::new(&["a.test", "b.test"]);
    let server = Server::start_tls("127.0.0.1:0", "secure", &authority);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[("a.test", "127.0.0.1")]);
    let network = json!({ "allow": ["a.test:*"], "private": [server.address] });
    let fixture = Fixture::new(&network, resolver);
    fixture.write("ca.pem", &authority.pem);
    fixture.write(
        "tunnel.py",
        "import socket, ssl, sys\n\
         name, target = sys.argv[1] or None, sys.argv[2]\n\
         stream = socket.create_connection(('127.0.0.1', 3128))\n\
         stream.sendall(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode())\n\
         assert b' 200 ' in stream.recv(4096)\n\
         context = ssl.create_default_context(cafile='ca.pem')\n\
         context.check_hostname = False\n\
         stream = context.wrap_socket(stream, server_hostname=name)\n\
         stream.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n')\n\
         print(stream.recv(4096).decode())\n",
    );
    for (name, works) in [
        ("a.test", true),
        ("b.test", false),
        ("", false),
        ("a.test.", false),
    ] {
        let command = format!("python3 tunnel.py '{name}' a.test:{port}");
        let output = fixture.run(&command).await;
        assert_eq!(output.exit_code == Some(0), works, "{name}: {output:?}");
        assert_eq!(
            output.refused_connections.is_empty(),
            works,
            "{name}: {output:?}"
        );
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn nothing_leads_around_the_proxy() {
    let server = Server::start("127.0.0.1:0", "host", None);
    let server6 = std::net::TcpListener::bind("[::1]:0").ok();
    let port6 = server6.map_or(1, |it| it.local_addr().unwrap().port());
    let port = server.address.port();
    let network = json!({ "allow": ["*:*"], "private": [server.address] });
    let fixture = Fixture::new(&network, FakeResolver::new(&[("a.test", "127.0.0.1")]));
    let attempt = fixture.dir.path().join("attempt");
    fs::copy(env!("CARGO_BIN_EXE_rye-sandbox-attempt"), attempt).unwrap();
    let control = format!(
        "./attempt socket 2 1 0 && {}",
        curl(&format!("http://a.test:{port}/"))
    );
    let output = fixture.run(&control).await;
    assert_eq!(output.stdout, "host 200", "{output:?}");
    for attempt in [
        format!("tcp 127.0.0.1:{port}"),
        format!("tcp [::1]:{port6}"),
        "tcp 192.0.2.1:80".to_owned(),
        "udp 127.0.0.1:9".to_owned(),
        "socket 2 2 0".to_owned(),    // UDP
        "socket 10 2 0".to_owned(),   // UDP over IPv6
        "socket 2 2 1".to_owned(),    // ICMP
        "socket 2 3 1".to_owned(),    // raw
        "socket 2 3 255".to_owned(),  // raw IP
        "socket 10 3 58".to_owned(),  // raw ICMP over IPv6
        "socket 2 1 132".to_owned(),  // SCTP
        "socket 2 1 262".to_owned(),  // multipath TCP
        "socket 2 5 132".to_owned(),  // SCTP, one to many
        "socket 2 6 33".to_owned(),   // DCCP
        "socket 16 3 0".to_owned(),   // netlink
        "socket 17 3 768".to_owned(), // packet
        "socket 40 1 0".to_owned(),   // vsock
        "socket 43 1 0".to_owned(),   // SMC
        "socket 2 2050 0".to_owned(), // UDP, not blocking
    ] {
        let output = fixture.run(&format!("timeout 5 ./attempt {attempt}")).await;
        assert_ne!(output.exit_code, Some(0), "{attempt}: {output:?}");
    }
    let routes = fixture.run("tail -n +2 /proc/net/route").await;
    assert_eq!(routes.stdout, "", "{routes:?}");
}

#[tokio::test]
async fn programs_inside_can_connect_to_each_other() {
    let network = json!({ "allow": ["a.test"] });
    let fixture = Fixture::new(&network, FakeResolver::new(&[]));
    fixture.write("file", "local");
    let script = "import http.server, threading, urllib.request\n\
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), \
        http.server.SimpleHTTPRequestHandler)\n\
        threading.Thread(target=server.serve_forever, daemon=True).start()\n\
        url = f'http://127.0.0.1:{server.server_port}/file'\n\
        print(urllib.request.urlopen(url).read().decode())\n";
    fixture.write("serve.py", script);
    let output = fixture.run("python3 serve.py").await;
    assert_eq!(output.stdout, "local\n", "{output:?}");
}

#[tokio::test]
async fn person_decides_about_other_hosts_once_per_command() {
    let server = Server::start("127.0.0.1:0", "hello", None);
    let port = server.address.port();
    let resolver = FakeResolver::new(&[("a.test", "127.0.0.1"), ("bad.test", "127.0.0.1")]);
    let network = json!({ "ask": true, "deny": ["bad.test"], "private": [server.address] });
    let fixture = Fixture::new(&network, resolver);
    let command = curl(&format!("http://a.test:{port}/ http://a.test:{port}/"));
    for (approves, expected) in [(true, "hello 200hello 200"), (false, "")] {
        let person = Person::who(approves);
        let output = run(&fixture.sandbox, &command, &person).await;
        assert_eq!(person.questions(), [format!("a.test:{port}")]);
        assert_eq!(
            output.refused_connections.is_empty(),
            approves,
            "{output:?}"
        );
        assert_eq!(output.stdout == expected, approves, "{output:?}");
    }
    let person = Person::who(true);
    let denied = curl(&format!("http://bad.test:{port}/"));
    let output = run(&fixture.sandbox, &denied, &person).await;
    assert!(output.stdout.ends_with(" 403"), "{output:?}");
    assert_eq!(
        person.questions(),
        [] as [String; 0],
        "a denial is not a question"
    );
}

#[tokio::test]
async fn question_without_an_answer_ends_with_the_command() {
    let network = json!({ "ask": true });
    let fixture = Fixture::new(&network, FakeResolver::new(&[]));
    let exec = Exec {
        command: "curl -sS http://a.test/".to_owned(),
        timeout: Some(Duration::from_secs(1)),
        ..Exec::default()
    };
    let output = fixture.sandbox.exec(exec, &Absent).await.unwrap();
    assert!(output.timed_out, "{output:?}");
}

#[tokio::test]
async fn tier_without_namespaces_has_no_network() {
    let server = Server::start("127.0.0.1:0", "hello", None);
    let port = server.address.port();
    let network = json!({ "allow": ["a.test:*"], "private": [server.address] });
    for (tier, works) in [(Tier::Full, true), (Tier::Landlock, false)] {
        let resolver = FakeResolver::new(&[("a.test", "127.0.0.1")]);
        let fixture = Fixture::in_tier(tier, &network, resolver);
        let access = fixture.sandbox.confinement().network;
        assert_eq!(access == NetworkAccess::Proxied, works);
        let output = fixture.run(&curl(&format!("http://a.test:{port}/"))).await;
        assert_eq!(output.exit_code == Some(0), works, "{output:?}");
        let grants = Grants {
            network: vec!["b.test".to_owned()],
            ..Grants::default()
        };
        assert_eq!(fixture.sandbox.widened(&grants).is_ok(), works);
    }
}

#[tokio::test]
async fn without_a_policy_there_is_no_network() {
    let fixture = Fixture::new(&json!({}), FakeResolver::new(&[]));
    assert_eq!(fixture.sandbox.confinement().network, NetworkAccess::None);
    let output = fixture
        .run("env | grep -i proxy; curl -sS http://192.0.2.1/")
        .await;
    assert_ne!(output.exit_code, Some(0));
    assert_eq!(output.stdout, "");
}

#[tokio::test]
async fn policy_hash_covers_the_hosts() {
    let network = json!({ "allow": ["a.test"] });
    let first = Fixture::new(&network, FakeResolver::new(&[]));
    let grants = |host: &str| Grants {
        network: vec![host.to_owned()],
        ..Grants::default()
    };
    let policy = |grants: &Grants| {
        let wide = first.sandbox.widened(grants).unwrap();
        wide.confinement().enforcement.unwrap().policy
    };
    assert_eq!(policy(&grants("b.test")), policy(&grants("b.test")));
    assert_ne!(policy(&grants("b.test")), policy(&grants("c.test")));
    assert_ne!(
        policy(&grants("b.test")),
        first.sandbox.policy_hash().to_hex()
    );
}

#[tokio::test]
async fn requests_that_are_not_for_a_proxy_are_refused() {
    let server = Server::start("127.0.0.1:0", "hello", None);
    let port = server.address.port();
    let network = json!({ "allow": ["a.test:*"], "private": [server.address] });
    let fixture = Fixture::new(&network, FakeResolver::new(&[("a.test", "127.0.0.1")]));
    let status = |output: &ExecOutput| output.stdout.split(' ').nth(1).map(str::to_owned);
    let send = |request: String| {
        format!("exec 3<>/dev/tcp/127.0.0.1/3128; printf '{request}\\r\\n\\r\\n' >&3; head -n1 <&3")
    };
    let good = send(format!(
        "GET http://a.test:{port}/ HTTP/1.1\\r\\nHost: a.test"
    ));
    let output = fixture.run(&good).await;
    assert_eq!(status(&output).as_deref(), Some("200"), "{output:?}");
    for (request, expected) in [
        ("GET / HTTP/1.1\\r\\nHost: a.test".to_owned(), "400"),
        (
            "GET https://a.test/ HTTP/1.1\\r\\nHost: a.test".to_owned(),
            "400",
        ),
        (
            "GET ftp://a.test/ HTTP/1.1\\r\\nHost: a.test".to_owned(),
            "400",
        ),
        (
            "CONNECT a.test HTTP/1.1\\r\\nHost: a.test".to_owned(),
            "400",
        ),
        (
            "CONNECT 2130706433:80 HTTP/1.1\\r\\nHost: a".to_owned(),
            "400",
        ),
    ] {
        let output = fixture.run(&send(request)).await;
        assert_eq!(status(&output).as_deref(), Some(expected), "{output:?}");
    }
    let long = format!("GET http://a.test:{port}/ HTTP/1.1\\r\\nX: %0300000d");
    let output = fixture.run(&send(long)).await;
    // The proxy closes while the client still sends, so the client may not get the answer.
    let is_refused = status(&output).is_none_or(|status| status == "431");
    assert!(is_refused, "{output:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn secret_is_added_outside_and_sent_encrypted() {
    let authority = Authority::new(&["localhost"]);
    let server = Server::start_tls("127.0.0.1:0", "secure", &authority);
    let port = server.address.port();
    let network = json!({
        "ask": false,
        "private": [server.address],
        "inject": [{
            "host": format!("localhost:{port}"),
            "header": "Authorization",
            "value": "Bearer ${vault:TOKEN}",
        }],
    });
    let dir = tempfile::tempdir().unwrap();
    let authority_file = dir.path().join("authority.pem");
    fs::write(&authority_file, &authority.pem).unwrap();
    let workspace = dir.path().join("ws");
    fs::create_dir(&workspace).unwrap();
    let run = |trusted: &str, url: &str| {
        let script = format!("env; curl -sS --noproxy '' -H 'Authorization: mine' {url}");
        let output = Command::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"))
            .args(["run", "full"])
            .arg(&workspace)
            .args(["sh", "-c", &script])
            .env("RYE_TEST_NETWORK", network.to_string())
            .env("SSL_CERT_FILE", trusted)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let trusted = authority_file.to_str().unwrap();
    let text = run(trusted, "http://localhost/path");
    assert!(text.ends_with("secure"), "{text}");
    assert!(
        !text.contains("value of"),
        "the command does not have the secret: {text}"
    );
    let requests = server.requests();
    let request = requests[0].to_lowercase();
    assert!(request.starts_with("get /path http/1.1"), "{request}");
    assert!(
        request.contains("authorization: bearer value of token\r\n"),
        "{request}"
    );
    assert!(!request.contains("mine"), "{request}");
    assert_eq!(requests.len(), 1);
    for (trusted, url) in [
        (trusted, format!("http://localhost:{port}/")),
        (trusted, "http://127.0.0.1/".to_owned()),
        ("/dev/null", "http://localhost/path".to_owned()),
    ] {
        let text = run(trusted, &url);
        assert!(!text.contains("secure"), "{url}: {text}");
    }
    assert_eq!(
        server.requests().len(),
        1,
        "nothing is sent to another port or server"
    );
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
