//! Credential access of tools.

use rye_protocol::{ActionId, ErrorCode, ErrorInfo};
use zeroize::Zeroizing;

use super::{CredentialLookup, Owner};
use crate::engine::Inner;
use crate::tool::{DecisionRequest, ToolContext, ToolError};

/// Maximum number of requests for one credential.
const MAX_REQUESTS: usize = 3;

impl ToolContext {
    /// The credential for a service. A missing or invalid one is requested at a gate; only this
    /// thread waits.
    ///
    /// The secret is redacted in all output of the tool.
    pub async fn credential(&self, service: &str) -> Result<Zeroizing<String>, ToolError> {
        for nth in 0..MAX_REQUESTS {
            let why = match self.look_up_credential(service).await? {
                CredentialLookup::Found(secret) => return Ok(secret),
                CredentialLookup::Missing => format!("No credential for {service}."),
                CredentialLookup::Invalid(why) => {
                    format!("The credential for {service} is no longer valid: {why}")
                }
            };
            Box::pin(self.request_credential(service, &why, nth)).await?;
        }
        Err(auth_required(
            service,
            "it was reported as provided but is missing",
        ))
    }

    /// Opens the n-th credential gate of this call and waits until a person provides the
    /// credential.
    pub async fn request_credential(
        &self,
        service: &str,
        why: &str,
        nth: usize,
    ) -> Result<(), ToolError> {
        let key = format!("credential:{}:{service}:{nth}", self.call);
        let title = format!("credential for {service}");
        let mut request = DecisionRequest::credential(key, title, service);
        why.clone_into(&mut request.body);
        // The link of an earlier process leads nowhere, and the gate keeps it.
        let login = if self.has_gate(&request.resume_key).await? {
            None
        } else {
            self.offer_login(service, &mut request).await?
        };
        let key = request.resume_key.clone();
        let decision = self.request_decision(request);
        let decision = match login {
            None => decision.await,
            Some(login) => {
                let mut decision = Box::pin(decision);
                let login = Box::pin(self.complete_login(service, &key, login));
                tokio::select! {
                    biased;
                    decided = &mut decision => decided,
                    done = login => {
                        done?;
                        decision.await
                    }
                }
            }
        };
        match decision {
            Ok(resolution) if resolution.action == ActionId::Provided => {
                // Look it up at once, so that it is redacted.
                self.look_up_credential(service).await.map(drop)
            }
            Ok(resolution) => {
                let why = format!("denied by {}", resolution.by);
                Err(auth_required(service, &why))
            }
            Err(ToolError(error)) if error.code == ErrorCode::GateExpired => {
                Err(auth_required(service, "the request expired"))
            }
            Err(error) => Err(error),
        }
    }

    async fn look_up_credential(&self, service: &str) -> Result<CredentialLookup, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let owners = self.owners(&engine);
        let now = engine.clock.now();
        let credentials = &self.setup.credentials;
        let found = credentials.look_up(&owners, service, now, &self.redactor);
        found
            .await
            .map_err(|error| ToolError::failed(error.to_string()))
    }

    /// Redacts all secrets that this session may use.
    pub(crate) async fn redact_credentials(&self) {
        if let Some(engine) = self.engine.upgrade() {
            let owners = self.owners(&engine);
            let credentials = &self.setup.credentials;
            credentials.redact_all(&owners, &self.redactor).await;
        }
    }

    /// Owners whose credentials this session may use, in order of precedence.
    fn owners(&self, engine: &Inner) -> Vec<Owner> {
        let mut owners = Vec::new();
        let mut next = Some(self.session.clone());
        let (mut user, mut org) = (None, None);
        // A task uses the credentials of its parent sessions.
        while let Some(session) = next.take().and_then(|id| engine.open_session(&id)) {
            let data = session.data();
            owners.push(Owner::Session(data.id.clone()));
            (user, org) = (data.user_id.clone(), data.org_id.clone());
            next = data.parent.as_ref().map(|above| above.session.clone());
        }
        owners.push(Owner::User(user.unwrap_or_default()));
        owners.extend(org.map(Owner::Org));
        owners
    }
}

/// Error for a credential that was not provided.
fn auth_required(service: &str, why: &str) -> ToolError {
    let message = format!("{service} needs a credential: {why}");
    ToolError(ErrorInfo::new(ErrorCode::AuthRequired, message))
}
