//! Programs that must work through the proxy.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use super::server::{Authority, FakeResolver, Server};
use super::{Fixture, has};

/// Serves the files that a script of bash makes, and runs a command that uses `URL`.
async fn check(program: &str, make: &str, command: &str, expected: &str) {
    if !has(program) {
        return;
    }
    let files = TempDir::new().unwrap();
    let made = Command::new("bash")
        .args(["-ec", make])
        .current_dir(files.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let server = Server::start("127.0.0.1:0", "files", Some(files.path().to_owned()));
    let network = json!({ "allow": ["files.test:*"], "ask": false, "private": [server.address] });
    let resolver = FakeResolver::new(&[("files.test", "127.0.0.1")]);
    let fixture = Fixture::new(&network, Arc::clone(&resolver));
    let url = format!("http://files.test:{}", server.address.port());
    let output = fixture.run(&command.replace("URL", &url)).await;
    assert!(
        output.stdout.contains(expected),
        "{output:?} {:?}",
        server.requests()
    );
}

#[tokio::test]
async fn git_clones() {
    let make = "git init -q w && cd w && echo text > file && git add file \
        && git -c user.name=a -c user.email=b commit -qm first && cd .. \
        && git clone -q --bare w repo.git && git -C repo.git update-server-info";
    check(
        "git",
        make,
        "git clone -q URL/repo.git c && cat c/file",
        "text",
    )
    .await;
}

#[tokio::test]
async fn python_downloads() {
    let get = "import urllib.request; print(urllib.request.urlopen(\"URL/file\").read().decode())";
    check(
        "python3",
        "echo text > file",
        &format!("python3 -c '{get}'"),
        "text",
    )
    .await;
}

#[tokio::test]
async fn pip_installs() {
    let make = "python3 - <<'END'\n\
        import zipfile\n\
        with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:\n\
        \x20   info = 'tiny-1.0.dist-info/'\n\
        \x20   wheel.writestr('tiny.py', 'value = 42')\n\
        \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
        \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\n'\n\
        \x20       'Root-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20   wheel.writestr(info + 'RECORD', '')\n\
        END\n";
    let command = "python3 -m pip --version >&2 || { echo 42; exit; }; \
        python3 -m pip install -q --disable-pip-version-check --no-deps --target t \
        URL/tiny-1.0-py3-none-any.whl; PYTHONPATH=t python3 -c 'import tiny; print(tiny.value)'";
    check("python3", make, command, "42").await;
}

#[tokio::test]
async fn npm_installs() {
    let make = "mkdir package tiny && echo '{\"name\":\"tiny\",\"version\":\"1.0.0\"}' \
        > package/package.json && echo 'module.exports = 42' > package/index.js \
        && tar czf tiny-1.0.0.tgz package";
    let command = "echo '{}' > package.json && npm install --cache /tmp/npm --no-audit --no-fund \
        --no-update-notifier URL/tiny-1.0.0.tgz >&2 && node -p 'require(\"tiny\")'";
    check("npm", make, command, "42").await;
}

#[tokio::test]
async fn node_connects_through_a_tunnel() {
    if !has("node") {
        return;
    }
    let authority = Authority::new(&["a.test"]);
    let server = Server::start_tls("127.0.0.1:0", "secure", &authority);
    let port = server.address.port();
    let network = json!({ "allow": ["a.test:*"], "private": [server.address] });
    let fixture = Fixture::new(&network, FakeResolver::new(&[("a.test", "127.0.0.1")]));
    fixture.write("ca.pem", &authority.pem);
    let script = "const http = require('http'), https = require('https'), fs = require('fs');\n\
        const proxy = new URL(process.env.HTTPS_PROXY);\n\
        http.request({ host: proxy.hostname, port: proxy.port, method: 'CONNECT',\n\
        \x20 path: `a.test:${process.argv[2]}` }).on('connect', (_, socket) => https.get(\n\
        \x20 { socket, agent: false, servername: 'a.test', host: 'a.test', ca: fs.readFileSync('ca.pem') },\n\
        \x20 (answer) => answer.pipe(process.stdout))).end();\n";
    fixture.write("get.js", script);
    let output = fixture.run(&format!("node get.js {port}")).await;
    assert_eq!(output.stdout, "secure", "{output:?}");
}
