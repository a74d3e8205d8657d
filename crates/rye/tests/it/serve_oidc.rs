//! Tokens of an OpenID Connect issuer on this machine, at a running server. The unit tests of
//! `rye-server` have the rules for tokens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};

use crate::serve::env_with;
use crate::serve_support::{Server, answer, client};
use crate::support::TestEnv;

/// Runs `openssl` and returns its output.
fn openssl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    Base64UrlUnpadded::encode_string(bytes.as_ref())
}

/// An issuer with an Ed25519 key that `openssl` made.
struct Issuer<'a> {
    env: &'a TestEnv,
    url: String,
}

impl<'a> Issuer<'a> {
    fn start(env: &'a TestEnv) -> Self {
        let key = env.path("issuer.pem");
        let key = key.to_str().unwrap();
        openssl(&["genpkey", "-algorithm", "ed25519", "-out", key]);
        let public = openssl(&["pkey", "-in", key, "-pubout", "-outform", "DER"]);
        // The last 32 bytes of the envelope are the key.
        let x = encode(&public[public.len() - 32..]);
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": x });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let issuer = url.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..count]);
                let body = if request.contains("/.well-known/openid-configuration") {
                    json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") })
                } else {
                    json!({ "keys": [key] })
                };
                let body = body.to_string();
                let length = body.len();
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                let _ = stream.write_all(format!("{head} {length}\r\n\r\n{body}").as_bytes());
            }
        });
        Self { env, url }
    }

    /// A signed token with changed claims.
    fn token(&self, changes: &Value) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let expiry = now.unwrap().as_secs() + 600;
        let mut claims = json!({
            "iss": self.url, "aud": "rye", "sub": "ada", "org": "acme", "exp": expiry,
            "scope": "openid rye:read rye:prompt",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = json!({ "alg": "EdDSA", "kid": "a", "typ": "JWT" });
        let message = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        self.env.write("message", &message);
        let (key, file) = (self.env.path("issuer.pem"), self.env.path("message"));
        let (key, file) = (key.to_str().unwrap(), file.to_str().unwrap());
        let signature = openssl(&["pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", file]);
        format!("{message}.{}", encode(signature))
    }
}

#[tokio::test]
async fn tokens_of_an_issuer_give_access_to_the_sessions_of_their_user() {
    let env = env_with("steps: [{ text: done }]");
    let issuer = Issuer::start(&env);
    let server = Server::start_with(
        &env,
        &[
            "--model",
            "scripted:agent.yaml",
            "--oidc-issuer",
            &issuer.url,
            "--oidc-audience",
            "rye",
        ],
    );
    let send = async |token: &str, path: &str, body: Option<Value>| {
        let url = format!("{}{path}", server.url);
        let request = match body {
            Some(body) => client().post(url).json(&body),
            None => client().get(url),
        };
        let (status, body) = answer(request.bearer_auth(token)).await;
        (status.as_u16(), body)
    };
    let ada = issuer.token(&json!({}));
    let (status, state) = send(&ada, "/api/sessions", Some(json!({}))).await;
    assert_eq!(status, 201, "{state}");
    assert_eq!(state["session"]["user_id"], "ada");
    assert_eq!(state["session"]["org_id"], "acme");
    let session = state["session"]["id"].as_str().unwrap();
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let (status, accepted) = send(&ada, &path, Some(json!({ "text": "go" }))).await;
    assert_eq!(status, 202, "{accepted}");
    let item = accepted["id"].as_str().unwrap();
    let (_, answer) = send(&ada, &format!("/api/prompts/{item}?wait=30"), None).await;
    assert_eq!(answer["text"], "done");

    let eve = issuer.token(&json!({ "sub": "eve", "org": "evil" }));
    let foreign = send(&eve, &format!("/api/sessions/{session}"), None).await;
    assert_eq!((foreign.0, &foreign.1["code"]), (404, &json!("not_found")));
    let denied = send(&ada, "/api/tokens", None).await;
    assert_eq!(
        (denied.0, &denied.1["code"]),
        (403, &json!("missing_scope"))
    );

    let expired = issuer.token(&json!({ "exp": 1_000_000 }));
    let audience = issuer.token(&json!({ "aud": "other" }));
    let (message, _) = ada.rsplit_once('.').unwrap();
    let (_, other) = eve.rsplit_once('.').unwrap();
    let forged = format!("{message}.{other}");
    for (token, code) in [
        (&expired, "token_expired"),
        (&audience, "wrong_audience"),
        (&forged, "invalid_signature"),
    ] {
        let refused = send(token, "/api/sessions", None).await;
        assert_eq!((refused.0, &refused.1["code"]), (401, &json!(code)));
    }
    // The server's own tokens are accepted too.
    assert_eq!(server.get("/api/sessions").await.0, 200);
}
