//! What a user can choose for a session: the permission mode and the model.

use agent_client_protocol::v1::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode,
    SessionModeState,
};
use rye_engine::policy::PermissionMode;
use rye_host::Catalogue;

/// Id of the option with the permission mode.
pub(crate) const MODE: &str = "mode";

/// Id of the option with the model.
pub(crate) const MODEL: &str = "model";

/// What is chosen in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) mode: PermissionMode,
    /// Name of the model.
    pub(crate) model: String,
    /// The model of a prompt without a choice.
    pub(crate) default_model: String,
}

/// A setting that the user chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Mode(PermissionMode),
    Model(String),
}

impl Choice {
    /// The value of an option; `None` if there is no such option or value.
    pub(crate) fn parse(option: &str, value: &str) -> Option<Self> {
        match option {
            MODE => PermissionMode::parse(value).map(Self::Mode),
            MODEL => Some(Self::Model(value.to_owned())),
            _ => None,
        }
    }
}

impl Settings {
    /// The model for the next prompt, unless it is the one that it has anyway.
    pub(crate) fn chosen_model(&self) -> Option<String> {
        (self.model != self.default_model).then(|| self.model.clone())
    }

    /// The modes, for editors without options.
    pub(crate) fn modes(&self) -> SessionModeState {
        let modes = PermissionMode::ALL.map(|mode| {
            let (name, description) = labels(mode);
            SessionMode::new(mode.as_str(), name).description(description.to_owned())
        });
        SessionModeState::new(self.mode.as_str(), modes.to_vec())
    }

    /// The options, with the models that can be used.
    pub(crate) fn options(&self, models: &Catalogue) -> Vec<SessionConfigOption> {
        let modes = PermissionMode::ALL.map(|mode| {
            let (name, description) = labels(mode);
            SessionConfigSelectOption::new(mode.as_str(), name).description(description.to_owned())
        });
        let summaries = models.list().into_iter();
        let mut names: Vec<_> = summaries
            .filter(|model| model.usable.is_ok())
            .map(|model| model.name)
            .collect();
        if !names.contains(&self.model) {
            names.insert(0, self.model.clone());
        }
        let names = names.into_iter();
        let names = names.map(|name| SessionConfigSelectOption::new(name.clone(), name));
        vec![
            SessionConfigOption::select(MODE, "Mode", self.mode.as_str(), modes.to_vec())
                .category(SessionConfigOptionCategory::Mode),
            SessionConfigOption::select(
                MODEL,
                "Model",
                self.model.clone(),
                names.collect::<Vec<_>>(),
            )
            .category(SessionConfigOptionCategory::Model),
        ]
    }
}

/// Name and description of a mode.
pub(crate) fn labels(mode: PermissionMode) -> (&'static str, &'static str) {
    match mode {
        PermissionMode::Ask => ("Ask", "Asks before each command and each change"),
        PermissionMode::Auto => ("Auto", "Runs what the sandbox confines without asking"),
        PermissionMode::ReadOnly => ("Read-only", "Denies commands and changes"),
    }
}
