//! `rye vault login`, and gates that offer a login: with a local OAuth server that checks PKCE.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use lillux::Hash;

use crate::support::{TestEnv, json, wait_for_gate};

/// What the server has issued.
#[derive(Default)]
struct State {
    /// Code challenges by code.
    challenges: HashMap<String, String>,
    /// Number of requests for a token with a device code.
    polls: usize,
    /// Number of issued tokens.
    tokens: usize,
    /// The forms of all requests for a token.
    forms: Vec<String>,
}

/// An OAuth server; its thread ends with the process.
struct OAuthServer {
    address: String,
    state: Arc<Mutex<State>>,
}

impl OAuthServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let (shared, base) = (Arc::clone(&state), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &base, &shared);
            }
        });
        Self { address, state }
    }

    /// The configuration of the service `acme`.
    fn config(&self, keys: &str) -> String {
        let at = &self.address;
        format!(
            "services:\n  acme:\n    token_url: {at}/token\n    client_id: rye-test\n    scopes: [read, write]\n{}",
            keys.replace("AT", at)
        )
    }

    fn forms(&self) -> Vec<String> {
        self.state.lock().unwrap().forms.clone()
    }
}

/// The pairs of a query or form.
fn pairs(text: &str) -> HashMap<String, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), decode(value))
    };
    text.split('&').map(pair).collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = std::str::from_utf8(&rest[..2]).unwrap();
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).unwrap()
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn serve(mut stream: TcpStream, base: &str, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut state = state.lock().unwrap();
    let (status, header, body) = match path {
        "/authorize" => {
            let query = pairs(query);
            assert_eq!(query["code_challenge_method"], "S256");
            assert_eq!(query["scope"], "read write");
            let code = format!("code-{}", state.challenges.len());
            let challenge = query["code_challenge"].clone();
            state.challenges.insert(code.clone(), challenge);
            let (to, word) = (&query["redirect_uri"], &query["state"]);
            let to = format!("location: {to}?code={code}&state={word}\r\n");
            (302, to, String::new())
        }
        "/device" => {
            let body = format!(
                "{{\"device_code\":\"device-secret\",\"user_code\":\"ABCD-EFGH\",\
                 \"verification_uri\":\"{base}/activate\",\"interval\":1,\"expires_in\":60}}"
            );
            (200, String::new(), body)
        }
        "/token" => {
            state.forms.push(body.clone());
            let (status, body) = token(&pairs(&body), &mut state);
            (status, String::new(), body)
        }
        _ => (404, String::new(), String::new()),
    };
    drop(state);
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{header}");
    write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
}

fn token(form: &HashMap<String, String>, state: &mut State) -> (u16, String) {
    let refused = |code: &str| (400, format!("{{\"error\":\"{code}\"}}"));
    match form["grant_type"].as_str() {
        "authorization_code" => {
            let verifier = Hash::digest(&form["code_verifier"]);
            let challenge = Base64UrlUnpadded::encode_string(verifier.as_bytes());
            if state.challenges.remove(&form["code"]) != Some(challenge) {
                return refused("invalid_grant");
            }
        }
        "urn:ietf:params:oauth:grant-type:device_code" => {
            assert_eq!(form["device_code"], "device-secret");
            state.polls += 1;
            if state.polls == 1 {
                return refused("authorization_pending");
            }
        }
        "refresh_token" => assert_eq!(form["refresh_token"], "refresh-secret-1"),
        other => panic!("{other}"),
    }
    state.tokens += 1;
    let number = state.tokens;
    // The first token expires at once.
    let lifetime = if number == 1 { 30 } else { 3600 };
    let body = format!(
        "{{\"access_token\":\"access-secret-{number}\",\"refresh_token\":\"refresh-secret-{number}\",\
         \"expires_in\":{lifetime},\"token_type\":\"Bearer\"}}"
    );
    (200, body)
}

/// Opens a page like a browser and follows its redirects.
fn browse(url: &str) -> String {
    let page = open(url);
    match location(&page) {
        Some(to) => browse(&to),
        None => page,
    }
}

/// The address to which a page redirects.
fn redirect(url: &str) -> Option<String> {
    location(&open(url))
}

fn location(page: &str) -> Option<String> {
    let mut lines = page.lines();
    let to = lines.find_map(|line| line.strip_prefix("location: "))?;
    Some(to.trim().to_owned())
}

fn open(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// A project with a command that needs the credential `acme`.
fn env(config: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write("user/.ai/config/agent/oauth.yaml", config);
    env.write(
        "user/.ai/config/agent/commands.yaml",
        "commands:\n  show:\n    description: Shows that it has a token\n    \
         run: 'test \"$TOKEN\" = access-secret-2 && echo refreshed || echo \"token: $TOKEN\"'\n    \
         credentials: { TOKEN: acme }\n    risk: low\n",
    );
    env.write(
        "project/agent.yaml",
        "steps:\n  - tool_calls: [{ name: call_tool, args: { tool_id: 'command:show', summary: x } }]\n  \
         - text: 'I read: ${last_tool_result}'\n",
    );
    env
}

/// A running `rye` and the lines of its standard error.
fn start(env: &TestEnv, args: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut command = env.command();
    command
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    (child, errors.lines().map(Result::unwrap))
}

/// The text after a mark in the first line that has it.
fn after(lines: &mut impl Iterator<Item = String>, mark: &str) -> String {
    let found = lines.find_map(|line| line.split_once(mark).map(|(_, after)| after.to_owned()));
    found.unwrap_or_else(|| panic!("no line with {mark}"))
}

const PROMPT: [&str; 6] = [
    "prompt",
    "go",
    "--model",
    "scripted:agent.yaml",
    "--sandbox",
    "local",
];

#[test]
fn login_in_a_browser_is_stored_and_refreshed_before_it_expires() {
    let server = OAuthServer::start();
    let env = env(&server.config("    authorize_url: AT/authorize\n"));
    let (child, mut lines) = start(&env, &["vault", "login", "acme"]);
    after(&mut lines, "open this URL in a browser:");
    let url = lines.next().unwrap();
    assert!(browse(&url).contains("You are logged in."));
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && printed.contains("logged in to acme"),
        "{printed}"
    );
    let listed = json(&env.run(&["vault", "list", "--json"]));
    assert_eq!(listed["credentials"][0]["name"], "acme");
    // The token expires within a minute.
    let prompted = env.run(&PROMPT);
    let answer = String::from_utf8_lossy(&prompted.stdout).into_owned();
    assert!(answer.contains("I read: refreshed"), "{prompted:?}");
    let forms = server.forms();
    assert!(forms[0].contains("client_id=rye-test"), "{forms:?}");
    assert!(forms[1].contains("grant_type=refresh_token"), "{forms:?}");
    let removed = env.run(&["vault", "rm", "acme", "--oauth"]);
    assert!(removed.status.success(), "{removed:?}");
}

#[test]
fn address_of_a_page_that_another_machine_could_not_load_completes_the_login() {
    let server = OAuthServer::start();
    let env = env(&server.config("    authorize_url: AT/authorize\n"));
    let mut command = env.command();
    command.args(["vault", "login", "acme"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let mut lines = errors.lines().map(Result::unwrap);
    after(&mut lines, "open this URL in a browser:");
    let url = lines.next().unwrap();
    let redirect = redirect(&url).unwrap();
    let mut input = child.stdin.take().unwrap();
    let other = redirect.replace("state=", "state=x");
    writeln!(input, "no address\n{other}").unwrap();
    after(&mut lines, "not an address");
    after(&mut lines, "the redirect belongs to another login");
    writeln!(input, "{redirect}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = json(&env.run(&["vault", "list", "--json"]));
    assert_eq!(listed["credentials"][0]["name"], "acme");
}

#[test]
fn gate_prefers_a_code_that_works_on_any_machine() {
    let server = OAuthServer::start();
    let env = env(&server.config("    authorize_url: AT/authorize\n    device_url: AT/device\n"));
    let child = env.command().args(PROMPT).spawn().unwrap();
    // The login needs two polls, so the gate may close at any time: the record has its text.
    let output = child.wait_with_output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(answer.contains("I read: refreshed"), "{output:?}");
    let shown = env.run(&["session", "list", "--json"]);
    let session = json(&shown)["sessions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let exported = env.run(&["session", "export", &session]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(exported.contains("code: ABCD-EFGH"), "{exported}");
}

#[test]
fn login_with_a_device_code_waits_for_the_person() {
    let server = OAuthServer::start();
    let env = env(&server.config("    device_url: AT/device\n"));
    let (child, mut lines) = start(&env, &["vault", "login", "acme", "--device", "--json"]);
    after(&mut lines, "open this URL in a browser:");
    assert_eq!(
        lines.next().unwrap(),
        format!("{}/activate", server.address)
    );
    assert!(lines.next().unwrap().ends_with("code: ABCD-EFGH"));
    let output = json(&child.wait_with_output().unwrap());
    assert_eq!(output["service"], "acme");
    assert_eq!(server.state.lock().unwrap().polls, 2);
}

#[test]
fn gate_of_a_missing_login_has_the_link_and_closes_after_the_login() {
    let server = OAuthServer::start();
    let env = env(&server.config("    authorize_url: AT/authorize\n"));
    let mut child = env.command().args(PROMPT).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    wait_for_gate(&env, &mut errors);
    let gates = json(&env.run(&["gate", "list", "--json"]));
    let gate = &gates["gates"][0];
    assert_eq!(gate["context"]["login"], "acme", "{gates}");
    let listed = env.run(&["gate", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("rye vault login acme && rye gate answer"),
        "{listed}"
    );
    let mut lines = gate["body"].as_str().unwrap().lines().map(str::to_owned);
    let url = after(&mut lines, "with a browser on the machine of rye: ");
    assert!(browse(&url).contains("You are logged in."));
    let output = child.wait_with_output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    // The token is redacted in the output, and refreshed because it expires at once.
    assert!(answer.contains("I read: refreshed"), "{output:?}");
    let closed = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(closed["gates"].as_array().unwrap().len(), 0);
}

#[test]
fn invalid_services_and_refused_logins_are_reported() {
    let server = OAuthServer::start();
    let env = env(&server.config("    authorize_url: AT/authorize\n"));
    let error = |args: &[&str]| {
        let output = env.run(args);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = error(&["vault", "login", "other"]);
    assert!(
        unknown.contains("no login is configured for other"),
        "{unknown}"
    );
    assert!(unknown.contains("acme"), "{unknown}");
    let device = error(&["vault", "login", "acme", "--device"]);
    assert!(device.contains("acme has no `device_url`"), "{device}");
    let (child, mut lines) = start(&env, &["vault", "login", "acme"]);
    after(&mut lines, "open this URL in a browser:");
    let url = lines.next().unwrap();
    // A redirect with another state does not belong to this login.
    let query = pairs(url.split_once('?').unwrap().1);
    browse(&format!(
        "{}?code=code-0&state=forged",
        query["redirect_uri"]
    ));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let rest: Vec<_> = lines.collect();
    assert!(
        rest.join("\n").contains("belongs to another login"),
        "{rest:?}"
    );
    // Tokens are not sent in plain text.
    env.write(
        "user/.ai/config/agent/oauth.yaml",
        "services: { acme: { token_url: 'http://acme.test/t', client_id: x, device_url: 'https://acme.test/d' } }\n",
    );
    let plain = error(&["vault", "login", "acme"]);
    assert!(
        plain.contains("`token_url`: the URL must start with https://"),
        "{plain}"
    );
}
