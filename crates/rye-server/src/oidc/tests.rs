//! Tokens of an issuer on this machine.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    Base64UrlUnpadded::encode_string(bytes.as_ref())
}

/// A key of the issuer.
enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Key {
    fn rsa() -> Self {
        let args = [
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
            "-outform",
            "DER",
        ];
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        // Some versions print the key without an envelope.
        let key = RsaKeyPair::from_pkcs8(&output.stdout);
        Self::Rsa(
            key.or_else(|_| RsaKeyPair::from_der(&output.stdout))
                .unwrap(),
        )
    }

    fn ec() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
    }

    fn ed() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
            Self::Ed(_) => "EdDSA",
        }
    }

    fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let public: ring::rsa::PublicKeyComponents<Vec<u8>> = key.public().into();
                json!({ "kty": "RSA", "kid": id, "n": encode(public.n), "e": encode(public.e) })
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": x, "y": y })
            }
            Self::Ed(key) => {
                let x = encode(key.public_key());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": x })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    fn token(&self, id: &str, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm(), "kid": id, "typ": "JWT" });
        let message = unsigned(&header, claims);
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        encode(header.to_string()),
        encode(claims.to_string())
    )
}

/// An issuer that serves its keys.
struct Issuer {
    url: String,
    keys: Arc<RwLock<Vec<Value>>>,
    requests: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(keys: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (keys, requests) = (Arc::new(RwLock::new(keys)), Arc::new(AtomicUsize::new(0)));
        let issuer = Self {
            url: url.clone(),
            keys: Arc::clone(&keys),
            requests: Arc::clone(&requests),
        };
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let count = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let body = if request.contains("/.well-known/openid-configuration") {
                    json!({ "issuer": url, "jwks_uri": format!("{url}/keys") })
                } else {
                    requests.fetch_add(1, Ordering::SeqCst);
                    json!({ "keys": *keys.read() })
                };
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let response = head + &body;
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        issuer
    }

    fn oidc(&self) -> Oidc {
        let options = OidcOptions {
            issuer: self.url.clone(),
            audience: "rye".to_owned(),
            user_claim: "sub".to_owned(),
            org_claim: "org".to_owned(),
            scope_claim: "scope".to_owned(),
            default_scopes: [Scope::Read].into(),
        };
        Oidc::new(options).unwrap()
    }

    fn claims(&self) -> Value {
        let now = lillux::time::now().epoch_ms / 1000;
        json!({ "iss": self.url, "aud": "rye", "sub": "ada", "exp": now + 600, "iat": now })
    }
}

/// Claims with some of them changed; `null` removes one.
fn changed(claims: &Value, changes: &Value) -> Value {
    let mut claims = claims.clone();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

async fn code(oidc: &Oidc, token: &str) -> String {
    let problem = oidc.verify(token).await.unwrap_err();
    assert_eq!(problem.status(), StatusCode::UNAUTHORIZED, "{problem:?}");
    problem.json()["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn claims_become_user_organisation_and_scopes() {
    for key in [Key::rsa(), Key::ec(), Key::ed()] {
        let issuer = Issuer::start(vec![json!({ "kty": "unknown" }), key.jwk("a")]).await;
        let (oidc, claims) = (issuer.oidc(), issuer.claims());
        let token = oidc.verify(&key.token("a", &claims)).await.unwrap();
        assert_eq!(
            (token.user.as_deref(), token.org.as_deref()),
            (Some("ada"), None)
        );
        assert_eq!(token.scopes, [Scope::Read].into());
        let scopes =
            json!({ "org": "acme", "scope": "openid rye:prompt decide", "aud": ["x", "rye"] });
        let token = key.token("a", &changed(&claims, &scopes));
        let token = oidc.verify(&token).await.unwrap();
        assert_eq!(token.org.as_deref(), Some("acme"));
        assert_eq!(token.scopes, [Scope::Prompt, Scope::Decide].into());
        assert_eq!(
            issuer.requests.load(Ordering::SeqCst),
            1,
            "the keys are cached"
        );
    }
}

#[tokio::test]
async fn tokens_that_do_not_verify_are_refused() {
    let (key, other) = (Key::ed(), Key::ed());
    let rsa = Key::rsa();
    let issuer = Issuer::start(vec![key.jwk("a"), rsa.jwk("rsa")]).await;
    let (oidc, claims) = (issuer.oidc(), issuer.claims());
    let now = lillux::time::now().epoch_ms / 1000;
    for (changes, expected) in [
        (json!({ "aud": "other" }), "wrong_audience"),
        (json!({ "aud": null }), "missing_claim"),
        (json!({ "iss": "https://evil.example" }), "wrong_issuer"),
        (json!({ "exp": now - 61 }), "token_expired"),
        (json!({ "exp": null }), "missing_claim"),
        (json!({ "nbf": now + 120 }), "token_not_yet_valid"),
        (json!({ "sub": null }), "missing_claim"),
        (json!({ "sub": " " }), "missing_claim"),
    ] {
        let token = key.token("a", &changed(&claims, &changes));
        assert_eq!(code(&oidc, &token).await, expected, "{changes}");
    }
    // Within the leeway.
    let token = key.token(
        "a",
        &changed(&claims, &json!({ "exp": now - 30, "nbf": now + 30 })),
    );
    oidc.verify(&token).await.unwrap();

    assert_eq!(
        code(&oidc, &other.token("a", &claims)).await,
        "invalid_signature"
    );
    assert_eq!(
        code(&oidc, &key.token("unknown", &claims)).await,
        "unknown_key"
    );
    // A key of another type.
    assert_eq!(
        code(&oidc, &key.token("rsa", &claims)).await,
        "unsupported_algorithm"
    );
    let none = unsigned(&json!({ "alg": "none", "kid": "a" }), &claims);
    assert_eq!(code(&oidc, &format!("{none}.")).await, "invalid_token");
    // The public key as the secret of an HMAC.
    let message = unsigned(&json!({ "alg": "HS256", "kid": "rsa" }), &claims);
    let public = rsa.jwk("rsa")["n"].as_str().unwrap().to_owned();
    let secret = Base64UrlUnpadded::decode_vec(&public).unwrap();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
    let forged = ring::hmac::sign(&secret, message.as_bytes());
    let forged = format!("{message}.{}", encode(forged));
    assert_eq!(code(&oidc, &forged).await, "unsupported_algorithm");
    for malformed in ["", "a", "a.b", "a.b.c", "....", "eyJhbGciOiJFZERTQSJ9.e30."] {
        let problem = oidc.verify(malformed).await.unwrap_err();
        assert_eq!(problem.status(), StatusCode::UNAUTHORIZED, "{malformed}");
    }
}

#[tokio::test]
async fn rotated_keys_are_fetched() {
    let (old, new) = (Key::ec(), Key::ed());
    let issuer = Issuer::start(vec![old.jwk("old")]).await;
    let (oidc, claims) = (issuer.oidc(), issuer.claims());
    oidc.verify(&old.token("old", &claims)).await.unwrap();
    *issuer.keys.write() = vec![new.jwk("new")];
    // Not more often than twice a minute.
    assert_eq!(code(&oidc, &new.token("new", &claims)).await, "unknown_key");
    assert_eq!(issuer.requests.load(Ordering::SeqCst), 1);
    let earlier = Instant::now().checked_sub(MIN_INTERVAL).unwrap();
    *oidc.last_request.lock().await = Some(earlier);
    oidc.verify(&new.token("new", &claims)).await.unwrap();
    assert_eq!(code(&oidc, &old.token("old", &claims)).await, "unknown_key");
    assert_eq!(issuer.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn issuer_that_is_down_is_reported() {
    let key = Key::ed();
    let issuer = Issuer::start(vec![key.jwk("a")]).await;
    let mut oidc = issuer.oidc();
    let token = key.token("a", &issuer.claims());
    // Nothing listens there.
    oidc.options.issuer = "http://127.0.0.1:1".to_owned();
    let problem = oidc.verify(&token).await.unwrap_err();
    assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem.json()["code"], "issuer_unavailable");
    let plain = OidcOptions {
        issuer: "http://example.org".to_owned(),
        ..issuer.oidc().options
    };
    assert!(Oidc::new(plain).is_err(), "keys must not come over http");
}
