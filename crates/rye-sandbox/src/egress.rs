//! The egress proxy: the only network of a confined command.
//!
//! The proxy runs in the process of the host. Commands reach it through `HTTP_PROXY` and its
//! relatives, as a port of their own network namespace, in which nothing else listens and from
//! which no route leads out. It decides by the [policy](NetworkPolicy), and asks a person through
//! the [observer](rye_engine::sandbox::ExecObserver::approve_connection) of the command about other
//! hosts.
//!
//! A person is asked while the command runs and its connection waits, because a command that was
//! refused has had effects by then and can't simply be repeated. The gate belongs to the running
//! call: it is withdrawn when the command ends, and if the process of the host dies, so does the
//! command, which is then not repeated.
//!
//! Names are resolved here. Every address is checked, and the connection is made to one of the
//! addresses that were checked, so a name that resolves differently the next time gains nothing.
//! TLS is not broken: the proxy only compares the server name of the client's first message with
//! the host of the request.

mod address;
mod client_hello;
mod dial;
mod fetch;
mod http;
mod policy;
mod tunnel;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use policy::{Target, Verdict};

pub use address::is_public;
pub use dial::{Resolver, SystemResolver};
pub use fetch::EgressClient;
pub use policy::{HostRule, Injection, InvalidHost, NetworkPolicy};

/// Maximum number of connections of a command at a time; more wait.
const MAX_CONNECTIONS: usize = 256;

/// A connection without data is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum number of refused connections that are reported.
const MAX_REPORTED: usize = 32;

/// Finds the value of a secret by its name.
pub type SecretSource = dyn Fn(&str) -> Result<Zeroizing<String>, String> + Send + Sync;

/// Why the proxy refuses a connection.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("not allowed by the network policy")]
    NotAllowed,
    #[error("denied by the network policy")]
    Denied,
    #[error("not approved")]
    NotApproved,
    #[error("{0} is not a public address")]
    NotPublic(std::net::IpAddr),
    #[error("the name cannot be resolved: {0}")]
    Unresolvable(std::io::Error),
    #[error("cannot connect: {0}")]
    Unreachable(std::io::Error),
    #[error("the TLS server name is {0}")]
    ServerName(String),
    #[error("the TLS server name is missing")]
    NoServerName,
    #[error("the TLS server name is encrypted")]
    EncryptedServerName,
    #[error("not a TLS connection")]
    NotTls,
    #[error("{0}")]
    Secret(String),
}

/// A connection that waits for a decision.
pub(crate) struct ConnectionRequest {
    pub(crate) target: String,
    pub(crate) reply: oneshot::Sender<bool>,
}

/// What the proxies of a sandbox share.
#[derive(Clone)]
pub(crate) struct EgressSetup {
    pub(crate) policy: NetworkPolicy,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) secrets: Arc<SecretSource>,
}

/// The proxy of one command.
pub(crate) struct EgressProxy {
    setup: EgressSetup,
    /// Asks about a connection; `None` if Rye refuses unlisted hosts without asking.
    requests: Option<mpsc::Sender<ConnectionRequest>>,
    /// Answers so far.
    answers: Mutex<HashMap<Target, bool>>,
    /// Held while a person is asked, so that they answer one question at a time and each once.
    asking: tokio::sync::Mutex<()>,
    refused: Mutex<BTreeSet<String>>,
}

impl EgressProxy {
    pub(crate) fn new(
        setup: EgressSetup,
        requests: Option<mpsc::Sender<ConnectionRequest>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            setup,
            requests,
            answers: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Serves connections until the future is dropped.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let proxy = Arc::clone(&self);
                    connections.spawn(async move {
                        proxy.serve_connection(stream).await;
                        drop(permit);
                    });
                }
                // A connection that is already gone, or too many open files: others may work.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The connections that were refused, each with the reason.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused.lock().iter().cloned().collect()
    }

    fn report(&self, target: &Target, refusal: &Refusal) {
        let mut refused = self.refused.lock();
        if refused.len() < MAX_REPORTED {
            refused.insert(format!("{target}: {refusal}"));
        }
    }

    /// Decides about a connection, and waits for a person if the policy leaves it to one.
    async fn permit(&self, target: &Target) -> Result<(), Refusal> {
        match (self.setup.policy.verdict(target), &self.requests) {
            (Verdict::Allowed, _) => Ok(()),
            (Verdict::Denied, _) => Err(Refusal::Denied),
            (Verdict::NotAllowed, _) | (Verdict::Ask, None) => Err(Refusal::NotAllowed),
            (Verdict::Ask, Some(requests)) if self.ask(target, requests).await => Ok(()),
            (Verdict::Ask, Some(_)) => Err(Refusal::NotApproved),
        }
    }

    /// The answer of a person about a connection.
    async fn ask(&self, target: &Target, requests: &mpsc::Sender<ConnectionRequest>) -> bool {
        let known = || self.answers.lock().get(target).copied();
        if let Some(answer) = known() {
            return answer;
        }
        let _asking = self.asking.lock().await;
        if let Some(answer) = known() {
            return answer;
        }
        let (reply, answer) = oneshot::channel();
        let request = ConnectionRequest {
            target: target.to_string(),
            reply,
        };
        let is_sent = requests.send(request).await.is_ok();
        let is_approved = is_sent && answer.await.unwrap_or(false);
        self.answers.lock().insert(target.clone(), is_approved);
        is_approved
    }
}
