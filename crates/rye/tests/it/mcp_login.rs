//! `rye mcp login`: a server that requires OAuth.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{TestEnv, assert_transcript, transcript_entry};

/// The server, killed on drop.
struct OauthServer {
    child: Child,
    address: String,
}

impl OauthServer {
    fn start() -> Self {
        let script = "tests/it/mcp_support/guarded_server.py";
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let mut child = Command::new("python3")
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut address).unwrap();
        Self {
            child,
            address: address.trim().to_owned(),
        }
    }
}

impl Drop for OauthServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a page and the target of its redirect.
fn fetch_page(url: &str) -> (String, Option<String>) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let to = page
        .lines()
        .find_map(|line| line.strip_prefix("Location: "));
    let to = to.map(|to| to.trim().to_owned());
    (page, to)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let nested = entries.map(|entry| entry.path()).flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    });
    nested.collect()
}

#[test]
fn login_is_used_until_logout() {
    let (mut env, server) = (TestEnv::new(), OauthServer::start());
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    let url = format!("{}/mcp", server.address);
    let added = env.run(&["mcp", "add", "docs", "--url", &url, "--no-check"]);
    assert!(added.status.success(), "{added:?}");
    let call = |env: &TestEnv| {
        let output = env.run(&["mcp", "call", "docs", "who", "--quiet"]);
        transcript_entry("rye mcp call docs who", &output)
    };
    let mut seen = call(&env);
    let mut login = env.command();
    let mut login = login.args(["mcp", "login", "docs"]).spawn().unwrap();
    let mut lines = BufReader::new(login.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("in a browser"));
    let (_, back) = fetch_page(&lines.next().unwrap().unwrap());
    let (page, _) = fetch_page(&back.unwrap());
    assert!(page.contains("You are logged in."), "{page}");
    let output = login.wait_with_output().unwrap();
    seen += &transcript_entry("rye mcp login docs", &output);
    seen += &call(&env);
    for file in files(&env.path("user"))
        .iter()
        .chain(&files(&env.path("project")))
    {
        let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
        assert!(!text.contains("open-sesame"), "{}", file.display());
    }
    seen += &env.transcript(&["mcp logout docs", "mcp logout docs", "mcp login nobody"]);
    seen += &call(&env);
    assert_transcript!(seen);
}
