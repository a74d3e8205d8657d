//! The HTTP side of the proxy: `CONNECT`, and requests whose target is a complete URL.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use lillux::template::{Segment, VARIABLE};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::policy::{Host, Injection, Target, Verdict};
use super::{EgressProxy, IDLE_TIMEOUT, Refusal};

/// Maximum size of the headers of a request.
const MAX_HEADER_SIZE: usize = 64 * 1024;

/// Port of `http://`.
const HTTP: u16 = 80;

/// Prefix of a secret of the vault in the value of an injected header.
const VAULT: &str = "vault:";

/// Headers about one connection, which are not passed on.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("proxy-connection"),
];

pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// A permitted `CONNECT` request.
struct Tunnel {
    client: OnUpgrade,
    server: TcpStream,
    target: Target,
}

impl EgressProxy {
    /// Serves one connection of a client.
    pub(super) async fn serve_connection(&self, stream: TcpStream) {
        let tunnel = Mutex::new(None);
        let service = service_fn(|request| async {
            Ok::<_, Infallible>(self.respond(request, &tunnel).await)
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(MAX_HEADER_SIZE)
            .serve_connection(TokioIo::new(stream), service);
        // A client that breaks the protocol has got an answer that says so.
        let _ = served.with_upgrades().await;
        let tunnel = tunnel.lock().take();
        if let Some(Tunnel {
            client,
            server,
            target,
        }) = tunnel
            && let Ok(client) = client.await
        {
            self.relay(TokioIo::new(client), server, &target).await;
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        tunnel: &Mutex<Option<Tunnel>>,
    ) -> Response<Body> {
        let Some(target) = target(&request) else {
            let text = "the egress proxy of the sandbox needs CONNECT or a complete http:// URL";
            return answer(StatusCode::BAD_REQUEST, text);
        };
        let outcome = if request.method() == Method::CONNECT {
            self.open_tunnel(request, &target, tunnel).await
        } else {
            self.forward(request, &target).await
        };
        outcome.unwrap_or_else(|refusal| {
            self.report(&target, &refusal);
            let text = format!("{target}: {refusal} (refused by the sandbox)\n");
            answer(refusal.status(), &text)
        })
    }

    async fn open_tunnel(
        &self,
        request: Request<Incoming>,
        target: &Target,
        tunnel: &Mutex<Option<Tunnel>>,
    ) -> Result<Response<Body>, Refusal> {
        self.permit(target).await?;
        let server = self.connect(target).await?;
        *tunnel.lock() = Some(Tunnel {
            client: hyper::upgrade::on(request),
            server,
            target: target.clone(),
        });
        Ok(answer(StatusCode::OK, ""))
    }

    /// Sends a request on; one with an injected secret as HTTPS.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        target: &Target,
    ) -> Result<Response<Body>, Refusal> {
        let injections = self.injections(target);
        let Some(secure) = injections.first().and_then(|it| it.target()) else {
            self.permit(target).await?;
            prepare(&mut request, target);
            let stream = self.connect(target).await?;
            return send(stream, request).await;
        };
        if self.setup.policy.verdict(&secure) == Verdict::Denied {
            return Err(Refusal::Denied);
        }
        prepare(&mut request, &secure);
        for injection in injections {
            let (name, value) = self.injected_header(injection)?;
            request.headers_mut().insert(name, value);
        }
        let stream = self.connect(&secure).await?;
        send(encrypt(stream, &secure).await?, request).await
    }

    /// The secrets for a target of `http://`.
    pub(super) fn injections(&self, target: &Target) -> Vec<&Injection> {
        let is_for = |injection: &&Injection| {
            let secure = injection.target();
            target.port == HTTP && secure.is_some_and(|it| it.host == target.host)
        };
        self.setup.policy.inject.iter().filter(is_for).collect()
    }

    pub(super) fn injected_header(
        &self,
        it: &Injection,
    ) -> Result<(HeaderName, HeaderValue), Refusal> {
        let mut text = Zeroizing::new(String::new());
        let parse = |inner: &str| inner.strip_prefix(VAULT).map(str::to_owned);
        for segment in VARIABLE.segments(&it.value, parse) {
            match segment {
                Segment::Text(literal) => text.push_str(literal),
                Segment::Placeholder { value, .. } => {
                    let secret = (self.setup.secrets)(&value);
                    text.push_str(&secret.map_err(Refusal::Secret)?);
                }
            }
        }
        let invalid = || Refusal::Secret(format!("the header {} is invalid", it.header));
        let name = it.header.parse().map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unresolvable(_) | Self::Unreachable(_) | Self::Secret(_) => {
                StatusCode::BAD_GATEWAY
            }
            _ => StatusCode::FORBIDDEN,
        }
    }
}

/// The target of a request; `None` if it is not one for a proxy.
fn target(request: &Request<Incoming>) -> Option<Target> {
    let uri = request.uri();
    let authority = uri.authority()?.as_str();
    let default_port = match (request.method(), uri.scheme_str()) {
        (&Method::CONNECT, _) => None,
        (_, Some("http")) => Some(HTTP),
        _ => return None,
    };
    Target::parse(authority, default_port).ok()
}

/// Turns a request to a proxy into one to the server.
fn prepare(request: &mut Request<Incoming>, target: &Target) {
    remove_hop_by_hop(request.headers_mut());
    let path = request.uri().path_and_query();
    let path = path.map_or("/", |path| path.as_str()).parse();
    *request.uri_mut() = path.unwrap_or_else(|_| Uri::from_static("/"));
    *request.version_mut() = hyper::Version::HTTP_11;
    if let Some(host) = host_header(target) {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// The header `Host` for a target.
pub(super) fn host_header(target: &Target) -> Option<HeaderValue> {
    let host = match target.port {
        HTTP | 443 => target.host.to_string(),
        _ => target.to_string(),
    };
    // The parts of a target are valid in a header.
    HeaderValue::from_str(&host).ok()
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter();
    let named = named.filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|names| names.split(','));
    let named: Vec<HeaderName> = named.filter_map(|it| it.trim().parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Sends a request on a new connection.
pub(super) async fn send<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<B>,
) -> Result<Response<Body>, Refusal>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |error: hyper::Error| Refusal::Unreachable(std::io::Error::other(error));
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    // Ends with the response: the sender and the body of the response keep it alive.
    tokio::spawn(connection);
    let response = timeout(IDLE_TIMEOUT, sender.send_request(request)).await;
    let response =
        response.map_err(|_| Refusal::Unreachable(std::io::ErrorKind::TimedOut.into()))?;
    let mut response = response.map_err(failed)?;
    remove_hop_by_hop(response.headers_mut());
    Ok(response.map(BodyExt::boxed))
}

/// Encrypts a connection. The server must have a certificate for the host.
pub(super) async fn encrypt(
    stream: TcpStream,
    target: &Target,
) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static, Refusal> {
    let failed = |error| Refusal::Unreachable(std::io::Error::other(error));
    let name = match &target.host {
        Host::Name(name) => ServerName::try_from(name.clone()),
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
    };
    let name = name.map_err(|error| failed(error.to_string()))?;
    let connector = TlsConnector::from(tls_config().map_err(failed)?);
    connector
        .connect(name, stream)
        .await
        .map_err(Refusal::Unreachable)
}

/// TLS with the certificates that this machine trusts; loaded once.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let make = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        Ok(Arc::new(
            config.with_root_certificates(roots).with_no_client_auth(),
        ))
    };
    CONFIG.get_or_init(make).clone()
}

fn answer(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    if !text.is_empty() {
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
    }
    response
}
