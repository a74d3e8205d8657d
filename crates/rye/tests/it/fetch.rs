//! The tool `fetch`: documents of the web, under the network policy.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{TestEnv, json as parse, outcome};

/// An HTTP server on the loopback interface with a response per path; notes requests.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(responses: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&requests);
        let own = |it: &(&str, &str)| (it.0.to_owned(), it.1.to_owned());
        let responses: HashMap<_, _> = responses.iter().map(own).collect();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                for line in lines.by_ref() {
                    if line.is_empty() {
                        break;
                    }
                }
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                let missing = "HTTP/1.1 404 Not Found\r\n\r\nno such page".to_owned();
                let response = responses.get(&path).unwrap_or(&missing).clone();
                noted.lock().unwrap().push(path);
                let _ = (&stream).write_all(response.as_bytes());
            }
        });
        Self { address, requests }
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.address.port())
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn html(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n\r\n{text}")
}

fn policy(env: &TestEnv, network: &Value) {
    let text = json!({ "network": network }).to_string();
    env.write("user/.ai/config/agent/sandbox.yaml", &text);
}

/// Runs a prompt whose model fetches a URL and answers with the result.
fn fetch(env: &TestEnv, url: &str, args: &[&str]) -> Output {
    let call = json!({ "tool_calls": [{ "name": "fetch", "args": { "url": url } }] });
    let answer = json!({ "text": "${last_tool_result}" });
    // For two prompts of a session.
    let script = json!({ "steps": [call, answer, call, answer] });
    env.write("project/script.yaml", &script.to_string());
    let prompt = [
        "prompt",
        "go",
        "--model",
        "scripted:script.yaml",
        "--sandbox",
        "virtual",
        "--json",
    ];
    env.run(&[&prompt[..], args].concat())
}

fn answer(output: &Output) -> String {
    let outcome = outcome(output);
    let answer = outcome["answer"].as_str();
    answer.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[test]
fn page_of_an_allowed_host_is_read_as_markdown() {
    let page = html("<title>Docs</title><h1>Hello</h1><p>See <a href='/b'>more</a>.</p>");
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /a\r\n\r\n";
    let server = Server::start(&[("/a", &page), ("/old?x=1", redirect)]);
    let env = TestEnv::new();
    let port = server.address.port();
    let allow = [format!("localhost:{port}")];
    policy(
        &env,
        &json!({ "allow": allow, "ask": false, "private": [server.address] }),
    );
    let text = answer(&fetch(&env, &server.url("localhost", "/old?x=1#part"), &[]));
    let (page, more) = (server.url("localhost", "/a"), server.url("localhost", "/b"));
    assert_eq!(
        text,
        format!("[{page}; Docs]\n\n# Hello\n\nSee [more]({more}).\n")
    );
    assert_eq!(server.requests(), ["/old?x=1", "/a"]);
    let missing = answer(&fetch(&env, &server.url("localhost", "/none"), &[]));
    assert!(
        missing.contains("status 404") && missing.contains("no such page"),
        "{missing}"
    );
}

#[test]
fn addresses_that_are_not_public_are_refused() {
    let server = Server::start(&[("/", &html("secret"))]);
    let env = TestEnv::new();
    policy(
        &env,
        &json!({ "allow": ["*:*", "127.0.0.1:*", "169.254.169.254:*"] }),
    );
    let port = server.address.port();
    for url in [
        server.url("localhost", "/"),
        server.url("127.0.0.1", "/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let text = answer(&fetch(&env, &url, &[]));
        assert!(text.contains("is not a public address"), "{url}: {text}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn redirect_to_another_host_is_checked_like_the_first() {
    let target = Server::start(&[("/", &html("internal"))]);
    let location = target.url("127.0.0.1", "/");
    let redirect = format!("HTTP/1.1 301 Moved\r\nlocation: {location}\r\n\r\n");
    let looped = "HTTP/1.1 307 Again\r\nlocation: /loop\r\n\r\n";
    let server = Server::start(&[("/", &redirect), ("/loop", looped)]);
    let env = TestEnv::new();
    let allow = [format!("localhost:{}", server.address.port())];
    policy(
        &env,
        &json!({ "allow": allow, "ask": false, "private": [server.address] }),
    );
    let text = answer(&fetch(&env, &server.url("localhost", "/"), &[]));
    assert!(text.contains("not allowed by the network policy"), "{text}");
    assert!(target.requests().is_empty());
    let text = answer(&fetch(&env, &server.url("localhost", "/loop"), &[]));
    assert!(text.contains("more than 5 redirects"), "{text}");
}

#[test]
fn person_approves_a_new_host_for_the_session() {
    let server = Server::start(&[("/", &html("approved text"))]);
    let env = TestEnv::new();
    policy(&env, &json!({ "private": [server.address] }));
    let url = server.url("localhost", "/");
    let waiting = fetch(&env, &url, &["--no-wait"]);
    assert_eq!(waiting.status.code(), Some(5), "{waiting:?}");
    let session = outcome(&waiting)["session"].as_str().unwrap().to_owned();
    let gate = parse(&env.run(&["gate", "list", "--json"]))["gates"][0].clone();
    let port = server.address.port();
    assert_eq!(gate["title"], format!("connect to localhost:{port}"));
    assert!(gate["body"].as_str().unwrap().contains(&url), "{gate:#}");
    assert!(server.requests().is_empty(), "nothing is sent before");
    let id = gate["id"].as_str().unwrap();
    assert!(env.run(&["gate", "approve", id]).status.success());
    let resumed = env.run(&["session", "resume", &session]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(server.requests().len(), 1);
    let again = fetch(&env, &url, &["--session", &session, "--no-wait"]);
    assert_eq!(answer(&again), format!("[{url}]\n\napproved text\n"));
    assert_eq!(server.requests().len(), 2);

    policy(&env, &json!({ "private": [server.address], "ask": false }));
    let text = answer(&fetch(&env, &url, &[]));
    assert!(text.contains("not allowed by the network policy"), "{text}");
    let deny = "rules:\n  - { tool: 'builtin:fetch', action: deny }\n";
    env.write("user/.ai/config/agent/approvals.yaml", deny);
    policy(
        &env,
        &json!({ "allow": ["localhost:*"], "private": [server.address] }),
    );
    let text = answer(&fetch(&env, &url, &[]));
    assert!(text.contains("denied by the policy"), "{text}");
}
