//! Tokens of an OpenID Connect issuer: JWTs that its keys have signed.
//!
//! The keys are fetched when they are first needed and cached. An unknown key id fetches them
//! again, at most twice a minute, so that the issuer can rotate its keys and a stream of invalid
//! tokens cannot flood it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode, header};
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Validation, decode, decode_header};
use parking_lot::RwLock;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rye_host::Failure;
use rye_protocol::Millis;
use rye_store::{AccessToken, Scope, TokenKind};
use serde_json::{Map, Value};

use crate::problem::Problem;

/// The algorithms that are accepted. All of them have a public key, so a public key can never be
/// used as a secret.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// Accepted difference between the clocks of the issuer and the server, in seconds.
const LEEWAY: u64 = 60;

/// Time limit of a request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long keys are used before they are fetched again.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Minimum time between two requests to the issuer.
const MIN_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum size of a document of the issuer.
const MAX_DOCUMENT: usize = 1024 * 1024;

/// Which tokens are accepted, and what their claims mean.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    /// URL of the issuer.
    pub issuer: String,
    /// Audience that tokens must have.
    pub audience: String,
    /// Claim that names the user.
    pub user_claim: String,
    /// Claim that names the organisation.
    pub org_claim: String,
    /// Claim that lists scopes, as text with spaces or as a list.
    pub scope_claim: String,
    /// Scopes of tokens that list none of ours.
    pub default_scopes: BTreeSet<Scope>,
}

/// Verifies tokens of an issuer.
pub(crate) struct Oidc {
    options: OidcOptions,
    client: reqwest::Client,
    keys: RwLock<Arc<Keys>>,
    /// Time of the last request, locked during a request.
    last_request: tokio::sync::Mutex<Option<Instant>>,
}

/// The keys of an issuer.
#[derive(Default)]
struct Keys {
    keys: Vec<Jwk>,
    fetched: Option<Instant>,
}

impl Keys {
    fn is_fresh(&self) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < MAX_AGE)
    }

    fn find(&self, id: Option<&str>) -> Option<&Jwk> {
        match id {
            Some(id) => self
                .keys
                .iter()
                .find(|key| key.common.key_id.as_deref() == Some(id)),
            // An issuer with a single key need not name it.
            None => match self.keys.as_slice() {
                [only] => Some(only),
                _ => None,
            },
        }
    }
}

fn refused(code: &'static str, detail: impl Into<String>) -> Problem {
    let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
    Problem::new(StatusCode::UNAUTHORIZED, code, detail).header(header::WWW_AUTHENTICATE, challenge)
}

impl Oidc {
    pub(crate) fn new(mut options: OidcOptions) -> Result<Self, Failure> {
        let is_local = |url: &str| {
            let host = url.strip_prefix("http://").unwrap_or_default();
            ["127.0.0.1", "localhost", "[::1]"]
                .iter()
                .any(|local| host.starts_with(local))
        };
        if !options.issuer.starts_with("https://") && !is_local(&options.issuer) {
            let message = format!("the issuer {} must be an https:// URL", options.issuer);
            return Err(Failure::usage(message));
        }
        let length = options.issuer.trim_end_matches('/').len();
        options.issuer.truncate(length);
        // Fails if they are already installed.
        let _ = PROVIDER.install_default();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::failed("http", error))?;
        Ok(Self {
            options,
            client,
            keys: RwLock::default(),
            last_request: tokio::sync::Mutex::default(),
        })
    }

    /// Verifies a token and returns what it permits.
    pub(crate) async fn verify(&self, token: &str) -> Result<AccessToken, Problem> {
        let malformed = |_| refused("invalid_token", "the token is not a valid JWT");
        let header = decode_header(token).map_err(malformed)?;
        if !ALGORITHMS.contains(&header.alg) {
            let detail = "the token must be signed with RS256, ES256 or EdDSA";
            return Err(refused("unsupported_algorithm", detail));
        }
        let key = self.key(header.kid.as_deref()).await?;
        let key = DecodingKey::from_jwk(&key);
        let key = key.map_err(|_| refused("unknown_key", "the key of the token is unusable"))?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.options.audience]);
        let issuer = &self.options.issuer;
        validation.set_issuer(&[issuer.clone(), format!("{issuer}/")]);
        validation.set_required_spec_claims(&["exp", "aud", "iss"]);
        let decoded = decode::<Map<String, Value>>(token, &key, &validation);
        let claims = decoded.map_err(|error| explain(&error))?.claims;
        self.token(&claims)
    }

    /// What the claims of a verified token permit.
    fn token(&self, claims: &Map<String, Value>) -> Result<AccessToken, Problem> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        let user_claim = &self.options.user_claim;
        let user = text(user_claim).filter(|user| !user.trim().is_empty());
        let user = user.ok_or_else(|| {
            refused(
                "missing_claim",
                format!("the token has no claim `{user_claim}`"),
            )
        })?;
        let listed = match claims.get(&self.options.scope_claim) {
            Some(Value::String(words)) => words.split(' ').map(str::to_owned).collect(),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str);
                words.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        let mut scopes: BTreeSet<Scope> = listed.iter().filter_map(|word| scope(word)).collect();
        if scopes.is_empty() {
            scopes.clone_from(&self.options.default_scopes);
        }
        let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and negative times have expired"
        )]
        let time = |name: &str| seconds(name).map(|it| Millis((it * 1000.0) as u64));
        Ok(AccessToken {
            id: format!("oidc:{user}"),
            kind: TokenKind::Api,
            name: text("name").unwrap_or_else(|| user.clone()),
            scopes,
            user: Some(user),
            org: text(&self.options.org_claim),
            project: None,
            created_at: time("iat").unwrap_or_default(),
            expires_at: time("exp"),
            created_by: None,
        })
    }

    /// The key with an id. Fetches the keys if it is unknown or they are old.
    async fn key(&self, id: Option<&str>) -> Result<Jwk, Problem> {
        let cached = Arc::clone(&self.keys.read());
        if cached.is_fresh()
            && let Some(key) = cached.find(id)
        {
            return Ok(key.clone());
        }
        let mut last_request = self.last_request.lock().await;
        // Another request may have fetched them in the meantime.
        let cached = Arc::clone(&self.keys.read());
        let is_recent = last_request.is_some_and(|at| at.elapsed() < MIN_INTERVAL);
        let known = cached.find(id).cloned();
        if is_recent || cached.is_fresh() && known.is_some() {
            return known.ok_or_else(|| match cached.fetched {
                Some(_) => refused("unknown_key", "no key of the issuer has signed the token"),
                None => unavailable("the keys of the issuer are not available"),
            });
        }
        *last_request = Some(Instant::now());
        match self.fetch().await {
            Ok(keys) => {
                let fetched = Some(Instant::now());
                let keys = Arc::new(Keys { keys, fetched });
                *self.keys.write() = Arc::clone(&keys);
                let found = keys.find(id).cloned();
                found.ok_or_else(|| {
                    refused("unknown_key", "no key of the issuer has signed the token")
                })
            }
            // An issuer that is down does not invalidate the keys that it has published.
            Err(error) => {
                tracing::warn!(%error, "cannot fetch the keys of the issuer");
                known.ok_or_else(|| unavailable(&error))
            }
        }
    }

    /// Fetches the keys of the issuer.
    async fn fetch(&self) -> Result<Vec<Jwk>, String> {
        let issuer = &self.options.issuer;
        let url = format!("{issuer}/.well-known/openid-configuration");
        let configuration = self.document(&url).await?;
        let own = configuration["issuer"].as_str().unwrap_or_default();
        if own.trim_end_matches('/') != issuer {
            return Err(format!("{url} describes another issuer"));
        }
        let keys = configuration["jwks_uri"].as_str();
        let keys = keys.ok_or_else(|| format!("{url} has no `jwks_uri`"))?;
        if keys.starts_with("http://") && issuer.starts_with("https://") {
            return Err("the keys of the issuer are not served over https".to_owned());
        }
        let document = self.document(keys).await?;
        let keys = document["keys"].as_array().cloned().unwrap_or_default();
        // Keys of other types are of no use here.
        let parsed = keys
            .into_iter()
            .filter_map(|key| serde_json::from_value(key).ok());
        Ok(parsed.collect())
    }

    async fn document(&self, url: &str) -> Result<Value, String> {
        let failed = |error: reqwest::Error| format!("{url}: {}", error.without_url());
        let mut response = self.client.get(url).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{url}: {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&part);
            if body.len() > MAX_DOCUMENT {
                return Err(format!("{url}: the document is too large"));
            }
        }
        serde_json::from_slice(&body).map_err(|error| format!("{url}: {error}"))
    }
}

fn unavailable(detail: &str) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "issuer_unavailable",
        detail,
    )
    .retry_after(30)
}

/// The scope that a word stands for, with or without the prefix `rye:`.
fn scope(word: &str) -> Option<Scope> {
    let name = word.strip_prefix("rye:").unwrap_or(word);
    Scope::ALL.into_iter().find(|scope| scope.as_str() == name)
}

/// Why a token is refused.
fn explain(error: &Error) -> Problem {
    let (code, detail) = match error.kind() {
        ErrorKind::ExpiredSignature => ("token_expired", "the token has expired"),
        ErrorKind::ImmatureSignature => ("token_not_yet_valid", "the token is not valid yet"),
        ErrorKind::InvalidAudience => ("wrong_audience", "the token is for another audience"),
        ErrorKind::InvalidIssuer => ("wrong_issuer", "the token is from another issuer"),
        ErrorKind::InvalidSignature => ("invalid_signature", "the signature does not verify"),
        ErrorKind::InvalidAlgorithm => (
            "unsupported_algorithm",
            "the key is not for the algorithm of the token",
        ),
        ErrorKind::MissingRequiredClaim(claim) => {
            let detail = format!("the token has no claim `{claim}`");
            return refused("missing_claim", detail);
        }
        _ => ("invalid_token", "the token is not a valid JWT"),
    };
    refused(code, detail)
}

/// Cryptography of `ring`, with which TLS is made too. Only public keys verify.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory,
    key_utils: KeyUtils::new_unimplemented(),
};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by `CryptoProvider`"
)]
fn verifier_factory(
    algorithm: &Algorithm,
    key: &DecodingKey,
) -> Result<Box<dyn JwtVerifier>, Error> {
    if !ALGORITHMS.contains(algorithm) || key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    let (algorithm, key) = (*algorithm, key.clone());
    Ok(Box::new(RingVerifier { algorithm, key }))
}

/// Verifies signatures with one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                verify(&ECDSA_P256_SHA256_FIXED, point, message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                verify(&ED25519, point, message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), ring::error::Unspecified> {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature)
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests;
