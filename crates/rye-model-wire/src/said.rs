//! What a model says, before it is put into a wire format.

use serde_json::Value;

/// What a model says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// What it thinks first.
    pub thought: Option<Thought>,
    /// Its words.
    pub text: String,
    /// What it calls, at once.
    pub calls: Vec<Call>,
    /// Why it stops, in the provider's word, where it is not because all is said.
    pub stop: Option<&'static str>,
    /// Tokens that it read, all of them.
    pub input: u64,
    /// Of these, from a cache.
    pub cached: u64,
    /// Of these, put into a cache; only Anthropic tells.
    pub cache_write: u64,
    /// Tokens that it wrote.
    pub output: u64,
}

/// A thought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thought {
    /// Its words.
    pub text: String,
    /// What the provider wants back: a signature, or the thought sealed.
    pub seal: String,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// With what.
    pub args: Value,
}

impl Said {
    /// Words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            input: 12,
            output: 5,
            ..Self::default()
        }
    }

    /// One call.
    pub fn call(id: &str, tool: &str, args: Value) -> Self {
        Self::default().and_call(id, tool, args)
    }

    /// And a call.
    #[must_use]
    pub fn and_call(mut self, id: &str, tool: &str, args: Value) -> Self {
        self.calls.push(Call {
            id: id.to_owned(),
            tool: tool.to_owned(),
            args,
        });
        self
    }

    /// Stopped for a reason.
    #[must_use]
    pub fn stopped(mut self, why: &'static str) -> Self {
        self.stop = Some(why);
        self
    }

    /// After a thought.
    #[must_use]
    pub fn after(mut self, text: &str, seal: &str) -> Self {
        self.thought = Some(Thought {
            text: text.to_owned(),
            seal: seal.to_owned(),
        });
        self
    }
}

/// A text in the pieces that a model says it in: words, with what stands between them.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}
