//! The meta tools `list_tools` and `call_tool`, which give a model access to any number of tools.
//!
//! A model sees only these two tools in its prompt and searches for others when it needs them.
//! Each [provider](ToolProvider) has a service name; its tools are called `SERVICE:ID`. A
//! [policy](Policy) decides before each call whether it is allowed, needs a person's approval, or
//! is denied. An approval covers the hash of everything that would run. If the hash has changed
//! by the time of the call, the person is asked again and shown what changed.

mod approval_question;
mod call;
mod commands;
mod earlier_approval;
mod list;

use std::sync::Arc;

use rye_engine::policy::Policy;
use rye_engine::tool::Tool;
use rye_engine::tool_provider::ToolProvider;

pub use commands::{CommandEntry, CommandSpec, CommandTools};

/// Splits a query into lower-case words without stop words, unless it has only stop words.
pub fn query_terms(query: &str) -> Vec<String> {
    let all: Vec<_> = query.split_whitespace().map(str::to_lowercase).collect();
    let is_significant = |word: &&String| !lillux::is_stop_word(word);
    let significant: Vec<_> = all.iter().filter(is_significant).cloned().collect();
    if significant.is_empty() {
        all
    } else {
        significant
    }
}

/// Creates the tools `list_tools` and `call_tool`.
pub fn tools(providers: Vec<Arc<dyn ToolProvider>>, policy: Policy) -> Vec<Arc<dyn Tool>> {
    let hub = Arc::new(ToolHub { providers, policy });
    vec![
        Arc::new(call::CallTool::new(Arc::clone(&hub))),
        Arc::new(list::list_tools(hub)),
    ]
}

/// The providers and the policy that the two tools share.
struct ToolHub {
    providers: Vec<Arc<dyn ToolProvider>>,
    policy: Policy,
}

impl ToolHub {
    fn services(&self) -> String {
        let names: Vec<_> = self
            .providers
            .iter()
            .map(|provider| provider.service())
            .collect();
        names.join(", ")
    }
}
