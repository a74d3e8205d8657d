//! Keys of browsers, with which people sign their decisions in the console.
//!
//! A browser sends its public key, which is stored as a request: a trust file without a signature.
//! The key is trusted, for decisions only, once a person confirms the request in a terminal
//! (`rye keys trust FILE`) or with a token that has the scope `admin`. A browser cannot confirm its
//! own key.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64ct::{Base64, Encoding as _};
use lillux::durable;
use lillux::keys::{Fingerprint, PublicKey, SigningKey};
use lillux::shell_word;
use rye_host::engine::database;
use rye_host::{Context, Failure, TrustedKeys};
use rye_items::trust::TrustFile;
use rye_items::{UserKeys, read_key_file};
use rye_store::{Scope, TokenKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Principal;
use crate::extract::{Body, Segments};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Directory of requests, beside the session database.
const REQUESTS: &str = "browser-keys";

/// Maximum number of requests that are not confirmed.
const MAX_REQUESTS: usize = 100;

/// The trust in keys of browsers, and requests for it.
pub(crate) struct BrowserKeys {
    requests: PathBuf,
    trusted: TrustedKeys,
    /// The user's keys and signing key, if there is one.
    own: Option<(UserKeys, Arc<SigningKey>)>,
}

impl BrowserKeys {
    pub(crate) fn new(context: &Context) -> Result<Self, Failure> {
        let own = match context.signing_key()? {
            Some(key) => Some((context.own_keys()?, Arc::clone(key))),
            None => None,
        };
        Ok(Self {
            requests: database(context)?.with_file_name(REQUESTS),
            trusted: context.trusted_keys(),
            own,
        })
    }

    fn path(&self, fingerprint: Fingerprint) -> PathBuf {
        self.requests.join(format!("{fingerprint}.toml"))
    }

    fn is_trusted(&self, fingerprint: Fingerprint) -> bool {
        self.trusted.user_key(&fingerprint.to_string()).is_some()
    }

    /// Stores a request.
    fn request(&self, file: &TrustFile) -> Result<(), Problem> {
        durable::create_dir(&self.requests, 0o700).map_err(unstorable)?;
        let path = self.path(file.key.fingerprint());
        if !path.exists() && self.requests()?.len() >= MAX_REQUESTS {
            let detail = "too many keys of browsers wait for confirmation";
            let status = StatusCode::TOO_MANY_REQUESTS;
            let hint = format!("rm -r {}", shell_word(&self.requests));
            return Err(Problem::new(status, "too_many_keys", detail).hint(hint));
        }
        let text = file.to_text();
        let replace = durable::IfExists::Replace;
        durable::write(&path, text.as_bytes(), 0o600, replace).map_err(unstorable)?;
        Ok(())
    }

    /// All requests.
    fn requests(&self) -> Result<Vec<TrustFile>, Problem> {
        let entries = match fs::read_dir(&self.requests) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unstorable(error)),
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths.filter_map(|path| read_key_file(&path).ok()).collect())
    }

    fn view(&self, file: &TrustFile) -> BrowserKey {
        let fingerprint = file.key.fingerprint();
        let trusted = self.is_trusted(fingerprint);
        let path = self.path(fingerprint);
        BrowserKey {
            fingerprint: fingerprint.to_string(),
            owner: file.owner.clone(),
            trusted,
            command: (!trusted).then(|| format!("rye keys trust {}", shell_word(&path))),
        }
    }
}

fn unstorable(error: impl std::fmt::Display) -> Problem {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    let detail = format!("cannot store the key of the browser: {error}");
    Problem::new(status, "browser_keys", detail)
}

fn no_own_key() -> Problem {
    let detail = "this user has no key that could vouch for the browser's";
    Problem::new(StatusCode::CONFLICT, "no_key", detail).hint("rye init")
}

/// A key to enrol.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBrowserKey {
    /// The public key: `SubjectPublicKeyInfo` in base64.
    public_key: String,
    /// Name of the browser for people, such as `Firefox on Linux`.
    name: String,
}

/// The key of a browser.
#[derive(Serialize, ToSchema)]
pub(crate) struct BrowserKey {
    /// Fingerprint of the key.
    fingerprint: String,
    /// The person and the browser.
    owner: Option<String>,
    /// Whether decisions that it signs count.
    trusted: bool,
    /// Command that confirms it in a terminal of the server, if it is not trusted.
    command: Option<String>,
}

/// Keys of browsers.
#[derive(Serialize, ToSchema)]
pub(crate) struct BrowserKeyList {
    keys: Vec<BrowserKey>,
}

/// Requests trust in the key of a browser
#[utoipa::path(
    post,
    path = "/api/browser-keys",
    tag = "browser keys",
    request_body = NewBrowserKey,
    responses(
        (status = 200, body = BrowserKey),
        (status = 409, description = "The user of the server has no key", body = ProblemDocument),
        (status = 422, description = "Not an Ed25519 public key", body = ProblemDocument),
    ),
)]
pub(crate) async fn enrol(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<NewBrowserKey>,
) -> Result<Json<BrowserKey>, Problem> {
    who.require(Scope::Decide)?;
    let keys = &app.browser_keys;
    if keys.own.is_none() {
        return Err(no_own_key());
    }
    let invalid =
        |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_key", detail);
    let der = Base64::decode_vec(&new.public_key);
    der.map_err(|_| invalid("the public key is not base64".to_owned()))?;
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        new.public_key
    );
    let key = PublicKey::from_pem(pem);
    let key = key.map_err(|error| invalid(format!("invalid public key: {error}")))?;
    let name: String = new
        .name
        .chars()
        .filter(|it| !it.is_control())
        .take(80)
        .collect();
    let file = TrustFile {
        key,
        owner: Some(format!("{} in {name}", who.name())),
        attestation: Some("requested by a browser".to_owned()),
        decisions_only: true,
    };
    if !keys.is_trusted(file.key.fingerprint()) {
        keys.request(&file)?;
    }
    Ok(Json(keys.view(&file)))
}

/// Lists the keys that browsers have requested trust in
#[utoipa::path(
    get,
    path = "/api/browser-keys",
    tag = "browser keys",
    responses((status = 200, body = BrowserKeyList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<BrowserKeyList>, Problem> {
    who.require(Scope::Admin)?;
    let mut requests = app.browser_keys.requests()?;
    requests.sort_by_key(|file| file.key.fingerprint());
    let keys = requests.iter().map(|file| app.browser_keys.view(file));
    let keys = keys.collect();
    Ok(Json(BrowserKeyList { keys }))
}

/// Trusts the key of a browser, for decisions only
///
/// Needs a token with the scope `admin`; a browser's login is not enough.
#[utoipa::path(
    post,
    path = "/api/browser-keys/{fingerprint}/confirm",
    tag = "browser keys",
    params(("fingerprint" = String, Path, description = "Fingerprint of the key")),
    responses(
        (status = 200, body = BrowserKey),
        (status = 403, description = "A browser cannot confirm keys", body = ProblemDocument),
        (status = 404, description = "No browser has requested this", body = ProblemDocument),
    ),
)]
pub(crate) async fn confirm(
    State(app): State<App>,
    who: Principal,
    Segments(fingerprint): Segments<String>,
) -> Result<Json<BrowserKey>, Problem> {
    who.require(Scope::Admin)?;
    if who.token().kind != TokenKind::Api {
        let detail = "a browser cannot confirm keys; use a token or a terminal";
        return Err(Problem::new(StatusCode::FORBIDDEN, "needs_token", detail));
    }
    let unknown = || Problem::not_found("key of a browser", &fingerprint);
    let parsed: Fingerprint = fingerprint.parse().map_err(|_| unknown())?;
    let keys = &app.browser_keys;
    let file = read_key_file(&keys.path(parsed)).map_err(|_| unknown())?;
    // The directory is the server's, but a file must not say more than the request.
    let file = TrustFile {
        decisions_only: true,
        ..file
    };
    let (own, signer) = keys.own.as_ref().ok_or_else(no_own_key)?;
    own.trust(&file, signer).map_err(unstorable)?;
    Ok(Json(keys.view(&file)))
}
