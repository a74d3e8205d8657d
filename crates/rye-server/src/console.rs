//! The web console: static files from `web/`, embedded in the binary.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use lillux::Hash;

use crate::problem::Problem;
use crate::server::App;

/// The page may only load and call this server, and runs no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'";

macro_rules! files {
    ($($name:literal,)*) => {
        &[$(($name, include_bytes!(concat!("../../../web/", $name)))),*]
    };
}

/// All files. A page lists the scripts that it preloads.
const FILES: &[(&str, &[u8])] = files![
    "index.html",
    "app.css",
    "icon.svg",
    "api.js",
    "app.js",
    "audit.js",
    "composer.js",
    "entries.js",
    "gate.js",
    "highlight.js",
    "hosts.js",
    "inbox.js",
    "items.js",
    "json.js",
    "keys.js",
    "list.js",
    "live.js",
    "markdown.js",
    "runs.js",
    "session.js",
    "sessions.js",
    "automation.js",
    "settings.js",
    "text.js",
    "timeline.js",
    "ui.js",
    "vendor/preact-htm.js",
];

/// The routes of the console. They need no token: the files contain no data.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route(
            "/",
            get(async |headers: HeaderMap| file("index.html", &headers)),
        )
        .route(
            "/console/{*name}",
            get(async |Path(name): Path<String>, headers: HeaderMap| file(&name, &headers)),
        )
}

/// A file of the console.
struct File {
    name: &'static str,
    bytes: &'static [u8],
    compressed: Vec<u8>,
    tag: String,
}

/// All files, compressed once.
static COMPRESSED: LazyLock<Vec<File>> = LazyLock::new(|| FILES.iter().map(File::new).collect());

impl File {
    fn new((name, bytes): &(&'static str, &'static [u8])) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail; without it, the file is sent as it is.
        let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        Self {
            name,
            bytes,
            compressed: compressed.unwrap_or_default(),
            tag: format!("\"{}\"", &Hash::digest(bytes).to_hex()[..16]),
        }
    }
}

/// A file, or `304` if the browser has it.
fn file(name: &str, request: &HeaderMap) -> Response {
    let Some(file) = COMPRESSED.iter().find(|file| file.name == name) else {
        return Problem::not_found("file", name).into_response();
    };
    let header_is = |name, test: &dyn Fn(&str) -> bool| {
        let value = request.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(test)
    };
    let is_known = header_is(header::IF_NONE_MATCH, &|known| known == file.tag);
    let accepts_gzip = header_is(header::ACCEPT_ENCODING, &|all| all.contains("gzip"));
    let is_compressed = accepts_gzip && !file.compressed.is_empty();
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else if is_compressed {
        file.compressed.as_slice().into_response()
    } else {
        file.bytes.into_response()
    };
    let fields = [
        (header::CONTENT_TYPE, media_type(file.name)),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, "accept-encoding"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_compressed && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::from_str(&file.tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
