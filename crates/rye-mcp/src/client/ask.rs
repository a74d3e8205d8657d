//! What a server wants to know of a person, and who is asked.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, InputRequest, InputRequiredResult, ProgressToken,
};
use rye_executor::redact::Redactor;
use serde_json::{Map, Value, json};

/// A form that a server wants to be filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicitation {
    /// The server, by the name people know.
    pub server: String,
    /// What it says.
    pub message: String,
    /// What it wants to know: a JSON Schema of an object whose properties are plain values.
    pub schema: Value,
}

/// What a person says to it.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationReply {
    /// The form, filled in. What is left out has its default.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// Nothing: they are gone, or cannot be asked.
    Cancel,
}

/// Somebody who can be asked.
pub trait ElicitationHandler: fmt::Debug + Send + Sync {
    /// Asks them.
    fn elicit(
        &self,
        question: Elicitation,
    ) -> Pin<Box<dyn Future<Output = ElicitationReply> + Send + '_>>;
}

tokio::task_local! {
    static CALLER: Arc<dyn ElicitationHandler>;
}

/// Does some work in which servers may ask whoever it is done for.
pub(crate) async fn asked_by<T>(
    caller: Arc<dyn ElicitationHandler>,
    work: impl Future<Output = T>,
) -> T {
    CALLER.scope(caller, work).await
}

/// For whom work is done here, if they can be asked.
pub(crate) fn caller() -> Option<Arc<dyn ElicitationHandler>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Whether a pool's servers may ask, and who is asked that calls for nobody else.
#[derive(Debug, Clone, Default)]
pub(super) struct Asks {
    pub(super) is_offered: bool,
    pub(super) usual: Option<Arc<dyn ElicitationHandler>>,
}

/// Who can be asked over one connection.
#[derive(Debug)]
pub(super) struct Askers {
    server: String,
    asks: Asks,
    /// What nobody is to see of what it says.
    redactor: Redactor,
    /// Those for whom calls are under way.
    callers: Mutex<HashMap<ProgressToken, Option<Arc<dyn ElicitationHandler>>>>,
}

impl Askers {
    pub(super) fn new(server: &str, asks: &Asks, redactor: &Redactor) -> Self {
        Self {
            server: server.to_owned(),
            asks: asks.clone(),
            redactor: redactor.clone(),
            callers: Mutex::default(),
        }
    }

    /// What the server is told that we can do.
    pub(super) fn capability(&self) -> Option<ElicitationCapability> {
        let form = FormElicitationCapability::default();
        let forms = ElicitationCapability::new().with_form(form);
        self.asks.is_offered.then_some(forms)
    }

    /// A call begins, for somebody.
    pub(super) fn begin(&self, call: ProgressToken, caller: Option<Arc<dyn ElicitationHandler>>) {
        self.callers().insert(call, caller);
    }

    /// It has ended.
    pub(super) fn end(&self, call: &ProgressToken) {
        self.callers().remove(call);
    }

    /// Answers what a server asks between messages. It does not say which call it is about;
    /// where there are several, nobody's secrets are to go to another's.
    pub(super) async fn asked(&self, form: ElicitRequestParams) -> ElicitResult {
        let caller = {
            let callers = self.callers();
            let mut all = callers.values();
            match (all.next(), all.next()) {
                (Some(only), None) => only.clone(),
                _ => None,
            }
        };
        self.put(form, caller).await
    }

    /// Answers what a server's result asks for before it can go on. The error says what
    /// cannot be given.
    pub(super) async fn required(
        &self,
        result: &InputRequiredResult,
        caller: Option<Arc<dyn ElicitationHandler>>,
    ) -> Result<std::collections::BTreeMap<String, Value>, String> {
        let mut answers = std::collections::BTreeMap::new();
        for (key, request) in result.input_requests.iter().flatten() {
            let answer = match request {
                InputRequest::Elicitation(request) => {
                    let answer = self.put(request.params.clone(), caller.clone()).await;
                    serde_json::to_value(answer)
                }
                // It is told of none when the conversation begins.
                InputRequest::ListRoots(_) => Ok(json!({ "roots": [] })),
                InputRequest::CreateMessage(_) => {
                    return Err("wants a model to be asked, which is not offered".to_owned());
                }
                _ => return Err("wants something that is not known here".to_owned()),
            };
            let answer = answer.map_err(|error| error.to_string())?;
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    async fn put(
        &self,
        form: ElicitRequestParams,
        caller: Option<Arc<dyn ElicitationHandler>>,
    ) -> ElicitResult {
        let who = caller.or_else(|| self.asks.usual.clone());
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = form
        else {
            return ElicitResult::new(ElicitationAction::Decline);
        };
        let schema = serde_json::to_value(requested_schema).unwrap_or_default();
        let Some(who) = who else {
            return ElicitResult::new(ElicitationAction::Cancel);
        };
        let question = Elicitation {
            server: self.server.clone(),
            message: self
                .redactor
                .redact(&super::said::without_controls(&message))
                .into_owned(),
            schema: schema.clone(),
        };
        match who.elicit(question).await {
            ElicitationReply::Accept(mut filled) => {
                fill_in(&mut filled, &schema);
                let filled = Value::Object(filled);
                ElicitResult::new(ElicitationAction::Accept).with_content(filled)
            }
            ElicitationReply::Decline => ElicitResult::new(ElicitationAction::Decline),
            ElicitationReply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        }
    }

    fn callers(
        &self,
    ) -> MutexGuard<'_, HashMap<ProgressToken, Option<Arc<dyn ElicitationHandler>>>> {
        let callers = self.callers.lock();
        callers.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives what was left out its default.
fn fill_in(filled: &mut Map<String, Value>, schema: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, about) in properties.into_iter().flatten() {
        if let Some(default) = about.get("default")
            && !filled.contains_key(name)
        {
            filled.insert(name.clone(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Says(ElicitationReply);

    impl ElicitationHandler for Says {
        fn elicit(
            &self,
            _: Elicitation,
        ) -> Pin<Box<dyn Future<Output = ElicitationReply> + Send + '_>> {
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

    fn says(name: &str) -> Arc<dyn ElicitationHandler> {
        let filled = json!({ "name": name }).as_object().unwrap().clone();
        Arc::new(Says(ElicitationReply::Accept(filled)))
    }

    #[tokio::test]
    async fn the_one_caller_is_asked_and_what_is_left_out_has_its_default() {
        let asks = Asks {
            is_offered: true,
            usual: None,
        };
        let askers = Askers::new("x", &asks, &Redactor::default());
        let answer = askers.asked(form()).await;
        assert_eq!(answer.action, ElicitationAction::Cancel);
        askers.begin(token(1), Some(says("ada")));
        let answer = askers.asked(form()).await;
        assert_eq!(answer.content, Some(json!({ "name": "ada", "age": 7 })));
        // Whose call it is about cannot be told.
        askers.begin(token(2), Some(says("bob")));
        let answer = askers.asked(form()).await;
        assert_eq!(answer.action, ElicitationAction::Cancel);
        askers.end(&token(1));
        let answer = askers.asked(form()).await;
        assert_eq!(answer.content, Some(json!({ "name": "bob", "age": 7 })));
    }
}
