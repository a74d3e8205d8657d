//! Logins that credential gates offer.

use std::fmt::Write as _;

use rye_protocol::{ActionId, GateId};

use super::{Credential, Owner};
use crate::BoxFuture;
use crate::engine::{Decision, Engine};
use crate::tool::{DecisionRequest, LOGIN, ToolContext, ToolError};

/// Starts logins to services that issue tokens.
pub trait LoginProvider: Send + Sync + 'static {
    /// Starts a login; `None` if no login is configured for the service.
    fn start<'a>(&'a self, service: &'a str)
    -> BoxFuture<'a, Option<Result<PendingLogin, String>>>;
}

/// Takes the address of a page; the error says what is wrong with it.
pub type TakeAddress = Box<dyn Fn(&str) -> Result<(), String> + Send>;

/// A login that waits for a person.
pub struct PendingLogin {
    /// Page on which the person logs in.
    pub url: String,
    /// Code that the person types there, if the page asks for one.
    pub code: Option<String>,
    /// If the login ends with a redirect to this machine: takes the address of that page from a
    /// person whose browser runs elsewhere and could not load it.
    pub redirect: Option<TakeAddress>,
    /// Completes when the person has logged in. The error contains no secrets.
    pub credential: BoxFuture<'static, Result<Credential, String>>,
}

impl ToolContext {
    /// Starts a login for the gate of a missing credential, and adds its link to the request.
    pub(super) async fn offer_login(
        &self,
        service: &str,
        request: &mut DecisionRequest,
    ) -> Result<Option<PendingLogin>, ToolError> {
        let Some(logins) = &self.setup.credentials.logins else {
            return Ok(None);
        };
        let Some(started) = logins.start(service).await else {
            return Ok(None);
        };
        request.context.insert(LOGIN.to_owned(), service.into());
        let text = match &started {
            Ok(PendingLogin {
                url,
                code: Some(code),
                ..
            }) => format!("\nlog in: {url}\ncode: {code}"),
            Ok(PendingLogin { url, .. }) => {
                format!("\nlog in, with a browser on the machine of rye: {url}")
            }
            Err(why) => format!("\n{why}"),
        };
        request.body += &self.redactor.redact(&text);
        // A call that is repeated after a crash finds the gate of the first one, with a dead link.
        let _ = write!(request.body, "\nor run: rye vault login {service}");
        Ok(started.ok())
    }

    /// Waits for a login, stores the credential and answers the gate.
    pub(super) async fn complete_login(
        &self,
        service: &str,
        resume_key: &str,
        login: PendingLogin,
    ) -> Result<(), ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let credential = match login.credential.await {
            Ok(credential) => credential,
            Err(why) => {
                // The person can still log in elsewhere, or deny.
                self.output(format!("cannot log in to {service}: {why}\n"));
                return Ok(());
            }
        };
        credential.add_to(&self.redactor);
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let store = self.setup.credentials.store.clone().ok_or_else(closed)?;
        let owner = Owner::User(self.user.clone().unwrap_or_default());
        let stored = store.put(&owner, service, &credential).await;
        stored.map_err(|error| ToolError::failed(error.to_string()))?;
        let gate = GateId::new(&self.session, &self.thread, &self.prompt, resume_key);
        let by = self.user.clone().unwrap_or_else(|| "login".to_owned());
        let decision = Decision::new(ActionId::Provided, by, "login");
        let decided = Engine::from(engine).decide(&gate, decision).await;
        // Another decision may have come first.
        decided
            .map(drop)
            .map_err(|error| ToolError::failed(error.to_string()))
    }
}
