//! What a tool call can do: its risk and its effect class.

use serde::{Deserialize, Serialize};

/// Risk level: how much harm a call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// No significant harm.
    Low,
    /// Harm that can be undone.
    Medium,
    /// Serious harm.
    High,
    /// Irreversible or far-reaching harm.
    Critical,
}

impl Risk {
    /// All levels, from low to critical.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Name of the level in files and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The level with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|risk| risk.as_str() == name)
    }

    /// The line of a gate's body that states a risk; `None` is unknown.
    pub fn gate_line(risk: Option<Self>) -> String {
        format!("risk: {}", risk.map_or("unknown", Self::as_str))
    }
}

/// Effect class: what may happen to a call whose host died while it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Run it again: it has no effects.
    Pure,
    /// Run it again: repeating it does no harm.
    Idempotent,
    /// Never run it again: the model gets a result that says that the outcome is unknown.
    #[default]
    AtMostOnce,
    /// Ask a person.
    Ask,
}

impl EffectClass {
    /// All effect classes.
    pub const ALL: [Self; 4] = [Self::Pure, Self::Idempotent, Self::AtMostOnce, Self::Ask];

    /// Name of the class in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
            Self::Ask => "ask",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}
