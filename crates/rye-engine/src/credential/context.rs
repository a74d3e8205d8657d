//! Credentials in a tool's hands.

use rye_protocol::{ErrorCode, ErrorInfo};
use zeroize::Zeroizing;

use super::{CredentialLookup, Owner};
use crate::engine::Inner;
use crate::tool::{DecisionRequest, ToolContext, ToolError};

/// How often a person is asked for one that they say is there.
const MOST: usize = 3;

impl ToolContext {
    /// The credential for a service. One that is not there, or not good any more, is asked
    /// for at a gate, and only this thread waits.
    ///
    /// What comes back is redacted in all that the tool gives, prints and says.
    pub async fn credential(&self, service: &str) -> Result<Zeroizing<String>, ToolError> {
        for nth in 0..MOST {
            let why = match self.look_for(service).await? {
                CredentialLookup::Found(secret) => return Ok(secret),
                CredentialLookup::Missing => format!("There is no credential for {service}."),
                CredentialLookup::Void(why) => {
                    format!("The one for {service} is no good any more: {why}")
                }
            };
            self.request_credential(service, &why, nth).await?;
        }
        Err(auth_required(
            service,
            "it was said to be there, and is not",
        ))
    }

    /// Asks a person for a credential, the n-th time in this call, until they say that it
    /// is there.
    pub(crate) async fn request_credential(
        &self,
        service: &str,
        why: &str,
        nth: usize,
    ) -> Result<(), ToolError> {
        let key = format!("credential:{}:{service}:{nth}", self.call);
        let title = format!("a credential for {service}");
        let mut request = DecisionRequest::credential(key, title, service);
        why.clone_into(&mut request.body);
        match self.request_decision(request).await {
            Ok(resolution) if resolution.action == "provided" => {
                // It must not be seen, whoever opens it.
                self.look_for(service).await.map(drop)
            }
            Ok(resolution) => {
                let why = format!("{} did not give it", resolution.by);
                Err(auth_required(service, &why))
            }
            Err(ToolError(error)) if error.code == ErrorCode::GateExpired => {
                Err(auth_required(service, "nobody gave it in time"))
            }
            Err(error) => Err(error),
        }
    }

    async fn look_for(&self, service: &str) -> Result<CredentialLookup, ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(gone)?;
        let owners = self.owners(&engine);
        let now = engine.clock.now();
        let found = engine
            .credentials
            .look(&owners, service, now, &self.redactor);
        found
            .await
            .map_err(|error| ToolError::failed(error.to_string()))
    }

    /// Has what this session may use redacted from now on.
    pub(crate) async fn learn_secrets(&self) {
        if let Some(engine) = self.engine.upgrade() {
            let owners = self.owners(&engine);
            engine.credentials.learn(&owners, &self.redactor).await;
        }
    }

    /// Whose credentials it may use, the nearest first.
    fn owners(&self, engine: &Inner) -> Vec<Owner> {
        let mut owners = Vec::new();
        let mut next = Some(self.session.clone());
        let (mut user, mut org) = (None, None);
        // A task has what the session has that gave it.
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

/// What a model is told of a credential that nobody gave.
fn auth_required(service: &str, why: &str) -> ToolError {
    let message = format!("{service} needs a credential: {why}");
    ToolError(ErrorInfo::new(ErrorCode::AuthRequired, message))
}
