//! Elicitation: a server asks the user for input during a call.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, InputRequest, InputRequiredResult, ProgressToken,
};
use rye_executor::redact::Redactor;
use serde_json::{Map, Value, json};

/// A form that a server asks the user to fill in.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicitation {
    /// Item id of the server's configuration.
    pub server: String,
    /// Message of the server.
    pub message: String,
    /// JSON Schema of the answer: an object whose properties are scalars.
    pub schema: Value,
}

/// The user's reply to an elicitation.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationReply {
    /// The content of the form. Missing properties get the defaults of the schema.
    Accept(Map<String, Value>),
    /// The user refused to answer.
    Decline,
    /// The user gave no answer or cannot be reached.
    Cancel,
}

/// Future of a reply to an elicitation.
pub type ElicitationFuture<'a> = Pin<Box<dyn Future<Output = ElicitationReply> + Send + 'a>>;

/// Answers the elicitations of servers, usually by asking the user.
pub trait ElicitationHandler: fmt::Debug + Send + Sync {
    /// Obtains the user's reply.
    fn elicit(&self, elicitation: Elicitation) -> ElicitationFuture<'_>;
}

tokio::task_local! {
    static HANDLER: Arc<dyn ElicitationHandler>;
}

/// Runs `work` with `handler` as the handler of elicitations in this task.
pub(crate) async fn with_handler<T>(
    handler: Arc<dyn ElicitationHandler>,
    work: impl Future<Output = T>,
) -> T {
    HANDLER.scope(handler, work).await
}

/// The elicitation handler of this task, if any.
pub(crate) fn current_handler() -> Option<Arc<dyn ElicitationHandler>> {
    HANDLER.try_with(Arc::clone).ok()
}

/// Elicitation settings of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct ElicitationSettings {
    /// Advertise the elicitation capability to servers.
    pub(super) is_offered: bool,
    /// Handler for calls that have none.
    pub(super) default_handler: Option<Arc<dyn ElicitationHandler>>,
}

/// Routes the elicitations of one connection to the handlers of its calls.
#[derive(Debug)]
pub(super) struct ElicitationRouter {
    server: String,
    settings: ElicitationSettings,
    /// Secrets to redact from messages of the server.
    redactor: Redactor,
    /// Handlers of the calls in progress.
    handlers: Mutex<HashMap<ProgressToken, Option<Arc<dyn ElicitationHandler>>>>,
}

impl ElicitationRouter {
    pub(super) fn new(server: &str, settings: &ElicitationSettings, redactor: &Redactor) -> Self {
        Self {
            server: server.to_owned(),
            settings: settings.clone(),
            redactor: redactor.clone(),
            handlers: Mutex::default(),
        }
    }

    /// The capability to advertise to the server.
    pub(super) fn capability(&self) -> Option<ElicitationCapability> {
        let form = FormElicitationCapability::default();
        let forms = ElicitationCapability::new().with_form(form);
        self.settings.is_offered.then_some(forms)
    }

    /// Registers the handler of a call.
    pub(super) fn register(
        &self,
        call: ProgressToken,
        handler: Option<Arc<dyn ElicitationHandler>>,
    ) {
        self.handlers.lock().insert(call, handler);
    }

    /// Removes the handler of a call that has ended.
    pub(super) fn unregister(&self, call: &ProgressToken) {
        self.handlers.lock().remove(call);
    }

    /// Answers an elicitation request of the server.
    ///
    /// The request does not say which call it belongs to. With several calls in progress, the
    /// default handler answers, so that one caller's input never goes to another caller's call.
    pub(super) async fn on_request(&self, form: ElicitRequestParams) -> ElicitResult {
        let handler = {
            let handlers = self.handlers.lock();
            let mut all = handlers.values();
            match (all.next(), all.next()) {
                (Some(only), None) => only.clone(),
                _ => None,
            }
        };
        self.answer_form(form, handler).await
    }

    /// Answers the input requests in a result. The error describes an unsupported request.
    pub(super) async fn answer_input_requests(
        &self,
        result: &InputRequiredResult,
        handler: Option<Arc<dyn ElicitationHandler>>,
    ) -> Result<std::collections::BTreeMap<String, Value>, String> {
        let mut answers = std::collections::BTreeMap::new();
        for (key, request) in result.input_requests.iter().flatten() {
            let answer = match request {
                InputRequest::Elicitation(request) => {
                    let answer = self
                        .answer_form(request.params.clone(), handler.clone())
                        .await;
                    serde_json::to_value(answer)
                }
                // This client advertises no roots.
                InputRequest::ListRoots(_) => Ok(json!({ "roots": [] })),
                InputRequest::CreateMessage(_) => {
                    return Err("requests sampling, which this client does not offer".to_owned());
                }
                _ => return Err("requests an unknown kind of input".to_owned()),
            };
            let answer = answer.map_err(|error| error.to_string())?;
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    async fn answer_form(
        &self,
        form: ElicitRequestParams,
        handler: Option<Arc<dyn ElicitationHandler>>,
    ) -> ElicitResult {
        let handler = handler.or_else(|| self.settings.default_handler.clone());
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = form
        else {
            return ElicitResult::new(ElicitationAction::Decline);
        };
        let schema = serde_json::to_value(requested_schema).unwrap_or_default();
        let Some(handler) = handler else {
            return ElicitResult::new(ElicitationAction::Cancel);
        };
        let elicitation = Elicitation {
            server: self.server.clone(),
            message: self
                .redactor
                .redact(&lillux::strip_control(&message))
                .into_owned(),
            schema: schema.clone(),
        };
        match handler.elicit(elicitation).await {
            ElicitationReply::Accept(mut content) => {
                fill_defaults(&mut content, &schema);
                let content = Value::Object(content);
                ElicitResult::new(ElicitationAction::Accept).with_content(content)
            }
            ElicitationReply::Decline => ElicitResult::new(ElicitationAction::Decline),
            ElicitationReply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        }
    }
}

/// Adds the schema's defaults for missing properties.
fn fill_defaults(content: &mut Map<String, Value>, schema: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FixedReply(ElicitationReply);

    impl ElicitationHandler for FixedReply {
        fn elicit(&self, _: Elicitation) -> ElicitationFuture<'_> {
            Box::pin(async { self.0.clone() })
        }
    }

    fn form() -> ElicitRequestParams {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "age": { "type": "integer", "default": 7 },
            },
        });
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "who?".to_owned(),
            requested_schema: serde_json::from_value(schema).unwrap(),
        }
    }

    fn token(number: i64) -> ProgressToken {
        ProgressToken(rmcp::model::NumberOrString::Number(number))
    }

    fn accepting(name: &str) -> Arc<dyn ElicitationHandler> {
        let content = json!({ "name": name }).as_object().unwrap().clone();
        Arc::new(FixedReply(ElicitationReply::Accept(content)))
    }

    #[tokio::test]
    async fn the_only_caller_is_asked_and_defaults_are_filled_in() {
        let settings = ElicitationSettings {
            is_offered: true,
            default_handler: None,
        };
        let elicitations = ElicitationRouter::new("x", &settings, &Redactor::default());
        let answer = elicitations.on_request(form()).await;
        assert_eq!(answer.action, ElicitationAction::Cancel);
        elicitations.register(token(1), Some(accepting("ada")));
        let answer = elicitations.on_request(form()).await;
        assert_eq!(answer.content, Some(json!({ "name": "ada", "age": 7 })));
        // The request cannot be attributed to one of two calls.
        elicitations.register(token(2), Some(accepting("bob")));
        let answer = elicitations.on_request(form()).await;
        assert_eq!(answer.action, ElicitationAction::Cancel);
        elicitations.unregister(&token(1));
        let answer = elicitations.on_request(form()).await;
        assert_eq!(answer.content, Some(json!({ "name": "bob", "age": 7 })));
    }
}
