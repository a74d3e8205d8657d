//! Servers on the loopback interface, and a resolver whose answers tests choose.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rye_engine::BoxFuture;
use rye_sandbox::Resolver;

/// A certificate authority, and the configuration of a server with a certificate from it.
pub(super) struct Authority {
    pub(super) pem: String,
    server: Arc<ServerConfig>,
}

impl Authority {
    pub(super) fn new(names: &[&str]) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Self {
            pem: issuer.pem(),
            server: Arc::new(server),
        }
    }
}

/// A server that answers with its name, with the headers of the request for `/headers`, with a
/// redirection for `/to/URL`, and with a file of its directory.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start(at: &str, name: &'static str, files: Option<PathBuf>) -> Self {
        Self::serve(at, name, files, None)
    }

    pub(super) fn start_tls(at: &str, name: &'static str, authority: &Authority) -> Self {
        Self::serve(at, name, None, Some(Arc::clone(&authority.server)))
    }

    fn serve(
        at: &str,
        name: &'static str,
        files: Option<PathBuf>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (own, files, tls) = (own.clone(), files.clone(), tls.clone());
                std::thread::spawn(move || {
                    let files = files.as_deref();
                    // A client that goes away is part of the tests.
                    let _ = match tls {
                        Some(config) => {
                            let tls = ServerConnection::new(config).unwrap();
                            own.answer(StreamOwned::new(tls, stream), name, files)
                        }
                        None => own.answer(stream, name, files),
                    };
                });
            }
        });
        server
    }

    /// The requests so far, with their headers.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn answer(
        &self,
        stream: impl Read + Write,
        name: &str,
        files: Option<&std::path::Path>,
    ) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if stream.read_line(&mut request)? == 0 {
                return Ok(());
            }
        }
        self.requests.lock().unwrap().push(request.clone());
        let path = request.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let file = files.map(|dir| dir.join(path.trim_start_matches('/')));
        let (status, body) = match (path.strip_prefix("/to/"), file) {
            (Some(url), _) => (format!("302 Found\r\nlocation: {url}"), Vec::new()),
            _ if path == "/headers" => ("200 OK".to_owned(), request.into_bytes()),
            (_, Some(file)) if file.is_file() => ("200 OK".to_owned(), fs::read(file)?),
            (_, Some(_)) => ("404 Not Found".to_owned(), Vec::new()),
            (_, None) => ("200 OK".to_owned(), name.as_bytes().to_vec()),
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        let stream = stream.get_mut();
        stream.write_all(&[head.as_bytes(), &body].concat())?;
        stream.flush()
    }
}

/// Answers with the given addresses, of which each lookup but the last takes the first ones.
#[derive(Default)]
pub(super) struct FakeResolver {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(super) lookups: Mutex<Vec<String>>,
}

impl FakeResolver {
    /// A resolver for names with one answer each.
    pub(super) fn new(names: &[(&str, &str)]) -> Arc<Self> {
        let resolver = Self::default();
        for (name, address) in names {
            resolver.answer(name, &[address]);
        }
        Arc::new(resolver)
    }

    /// Sets the answers of the next lookups; the last one stays.
    pub(super) fn answer(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|it| vec![it.parse().unwrap()]);
        let mut answers = self.answers.lock().unwrap();
        answers.insert(name.to_owned(), addresses.collect());
    }
}

impl Resolver for FakeResolver {
    fn resolve<'a>(
        &'a self,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.lookups.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let found = match answers.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let found = found.map(|all| {
            let all = all.into_iter();
            all.map(|address| SocketAddr::new(address, port)).collect()
        });
        Box::pin(std::future::ready(found))
    }
}
