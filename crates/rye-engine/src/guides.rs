//! Guides: roles, skills and workspace rules, which are texts for the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use lillux::template::{DOUBLE_BRACES, Segment};

use crate::BoxFuture;
use crate::model::ModelFamily;
use crate::sandbox::Sandbox;

/// A role: instructions for the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Name of the role.
    pub name: String,
    /// Purpose of the role.
    pub description: String,
    /// Model for this role, unless the prompt names one.
    pub model: Option<String>,
    /// Text for the system prompt.
    pub text: String,
    /// Whether the text replaces the base system prompt, instead of extending it.
    pub replaces_base: bool,
}

/// A file with instructions for agents, such as `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// Path of the file, for the model.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// A skill: instructions that the model loads on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Name of the skill.
    pub name: String,
    /// When to use the skill.
    pub description: String,
    /// Instructions with `{{variables}}`.
    pub text: String,
}

impl Skill {
    /// Names of the variables in the text.
    pub fn variables(&self) -> BTreeSet<&str> {
        let segments = segments(&self.text);
        let names = segments.filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Placeholder { value: name, .. } => Some(name),
        });
        names.collect()
    }

    /// Fills in the variables. The error names missing and unknown variables.
    pub fn fill(&self, values: &BTreeMap<String, String>) -> Result<String, String> {
        let variables = self.variables();
        let missing: Vec<_> = variables
            .iter()
            .filter(|name| !values.contains_key(**name))
            .map(|name| format!("`{name}`"))
            .collect();
        let unknown: Vec<_> = values
            .keys()
            .filter(|name| !variables.contains(name.as_str()))
            .map(|name| format!("`{name}`"))
            .collect();
        let mut message = String::new();
        if !missing.is_empty() {
            let _ = write!(
                message,
                "skill `{}` needs {}",
                self.name,
                missing.join(", ")
            );
        }
        if !unknown.is_empty() {
            let separator = if message.is_empty() { "" } else { "; " };
            let _ = write!(message, "{separator}unknown: {}", unknown.join(", "));
        }
        if !message.is_empty() {
            return Err(message);
        }
        let mut text = String::new();
        for segment in segments(&self.text) {
            text.push_str(match segment {
                Segment::Text(literal) => literal,
                Segment::Placeholder { value: name, .. } => values.get(name).map_or("", |it| it),
            });
        }
        Ok(text)
    }
}

/// Splits a text at its variables. Braces around anything but a name are literal.
fn segments(text: &str) -> impl Iterator<Item = Segment<'_, &str>> {
    DOUBLE_BRACES.segments(text, |inner| {
        let name = inner.trim();
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        (!name.is_empty() && name.bytes().all(is_valid)).then_some(name)
    })
}

/// Future of a guide; the error is a message.
pub type GuideFuture<'a, T> = BoxFuture<'a, Result<T, String>>;

/// Source of roles, skills and rules.
pub trait Guides: Send + Sync + 'static {
    /// Loads a role by name.
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Role>;

    /// Lists all roles, sorted by name.
    fn roles<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Role>>;

    /// Loads a skill by name.
    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Skill>;

    /// Lists all skills, sorted by name.
    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>>;

    /// Loads the instruction files of the user and the workspace, the most general first.
    fn instructions<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<InstructionFile>>;

    /// The base system prompt for a family of models; `None` for that of the engine.
    fn base_prompt(&self, family: ModelFamily) -> Option<String> {
        let _ = family;
        None
    }

    /// Facts about the workspace that differ from run to run, such as the date and the git branch.
    fn environment<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>> {
        let _ = sandbox;
        Box::pin(std::future::ready(None))
    }
}

/// Builds the system prompt.
pub(crate) fn system_prompt(
    base: &str,
    role: Option<&Role>,
    instructions: &[InstructionFile],
    skills: &[Skill],
    extra: Option<&str>,
) -> String {
    let replaces_base = role.is_some_and(|role| role.replaces_base);
    let mut text = if replaces_base { "" } else { base.trim_end() }.to_owned();
    let mut add = |part: &str| {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(part.trim());
    };
    if let Some(role) = role {
        add(&role.text);
    }
    for file in instructions {
        add(&format!(
            "Instructions from {}:\n\n{}",
            file.path,
            file.text.trim()
        ));
    }
    if !skills.is_empty() {
        let lines = skills.iter().map(|skill| {
            let variables: Vec<_> = skill.variables().into_iter().collect();
            let needs = match variables.as_slice() {
                [] => String::new(),
                some => format!(" (needs {})", some.join(", ")),
            };
            format!("- {}: {}{needs}", skill.name, skill.description)
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        add(&format!(
            "Available skills; load the instructions with the tool `skill`:\n{lines}"
        ));
    }
    if let Some(extra) = extra {
        add(extra);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(text: &str) -> Skill {
        Skill {
            name: "release".to_owned(),
            description: "how to release".to_owned(),
            text: text.to_owned(),
        }
    }

    fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn variables_are_filled_in_and_other_text_is_literal() {
        for (text, all, expected) in [
            ("no variables", &[][..], Ok("no variables")),
            ("tag {{version}}!", &[("version", "1.2")], Ok("tag 1.2!")),
            ("{{ a }}{{a}}", &[("a", "{{a}}")], Ok("{{a}}{{a}}")),
            ("{{ not a name }} {{", &[], Ok("{{ not a name }} {{")),
            ("{{x", &[], Ok("{{x")),
            ("{{b}} {{a}}", &[], Err("skill `release` needs `a`, `b`")),
            (
                "{{a}}",
                &[("b", "1")],
                Err("skill `release` needs `a`; unknown: `b`"),
            ),
        ] {
            let actual = skill(text).fill(&variables(all));
            let actual = actual.as_deref().map_err(String::as_str);
            assert_eq!(actual, expected, "{text}");
        }
    }

    #[test]
    fn system_prompt_contains_all_parts_in_order() {
        let role = Role {
            name: "reviewer".to_owned(),
            description: String::new(),
            model: None,
            text: "You review.\n".to_owned(),
            replaces_base: false,
        };
        let instructions = [
            ("~/.ai/AGENTS.md", "Be brief.\n"),
            ("AGENTS.md", "Use tabs."),
        ];
        let instructions = instructions.map(|(path, text)| InstructionFile {
            path: path.to_owned(),
            text: text.to_owned(),
        });
        let prompt = system_prompt(
            "Base.",
            Some(&role),
            &instructions,
            &[skill("{{version}}")],
            Some("Answer in JSON."),
        );
        assert_eq!(
            prompt,
            "Base.\n\nYou review.\n\n\
             Instructions from ~/.ai/AGENTS.md:\n\nBe brief.\n\n\
             Instructions from AGENTS.md:\n\nUse tabs.\n\n\
             Available skills; load the instructions with the tool `skill`:\n\
             - release: how to release (needs version)\n\n\
             Answer in JSON."
        );
        assert_eq!(system_prompt("Base.", None, &[], &[], None), "Base.");
        let role = Role {
            replaces_base: true,
            ..role
        };
        let prompt = system_prompt("Base.", Some(&role), &[], &[], None);
        assert_eq!(prompt, "You review.");
    }
}
