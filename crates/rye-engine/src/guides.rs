//! What guides an agent: roles, skills and the rules of its workspace. Words for a model,
//! all of them: nothing here runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::BoxFuture;
use crate::sandbox::Sandbox;

/// How an agent is to see itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The model that has it, unless a prompt names one.
    pub model: Option<String>,
    /// What the model is told.
    pub text: String,
}

/// How something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When it is of use.
    pub description: String,
    /// What to do, with `{{variables}}` that are filled in.
    pub text: String,
}

impl Skill {
    /// The variables that its text has.
    pub fn variables(&self) -> BTreeSet<&str> {
        pieces(&self.text).filter_map(|(_, name)| name).collect()
    }

    /// The text with its variables filled in; or in words which are missing, and which are
    /// not among them.
    pub fn fill(&self, given: &BTreeMap<String, String>) -> Result<String, String> {
        let variables = self.variables();
        let missing: Vec<_> = variables
            .iter()
            .filter(|name| !given.contains_key(**name))
            .map(|name| format!("`{name}`"))
            .collect();
        let unknown: Vec<_> = given
            .keys()
            .filter(|name| !variables.contains(name.as_str()))
            .map(|name| format!("`{name}`"))
            .collect();
        let mut wrong = String::new();
        if !missing.is_empty() {
            let _ = write!(
                wrong,
                "the skill `{}` needs {}",
                self.name,
                missing.join(", ")
            );
        }
        if !unknown.is_empty() {
            let and = if wrong.is_empty() { "" } else { "; " };
            let _ = write!(wrong, "{and}it knows no {}", unknown.join(", "));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut text = String::new();
        for (plain, name) in pieces(&self.text) {
            text.push_str(plain);
            if let Some(value) = name.and_then(|name| given.get(name)) {
                text.push_str(value);
            }
        }
        Ok(text)
    }
}

/// A text in pieces: what is plain, and the variable that follows it. Braces around what is
/// no name are plain.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(open) = rest[from..].find("{{").map(|at| from + at) {
            let inside = &rest[open + 2..];
            let close = inside.find("}}");
            let name = close.map(|close| inside[..close].trim());
            if let (Some(close), Some(name)) = (close, name.filter(|name| is_name(name))) {
                let plain = &rest[..open];
                rest = &inside[close + 2..];
                return Some((plain, Some(name)));
            }
            from = open + 2;
        }
        Some((std::mem::take(&mut rest), None))
    })
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.bytes().all(plain)
}

/// What is read, some time; or in words why it cannot be.
pub type GuideFuture<'a, T> = BoxFuture<'a, Result<T, String>>;

/// Where roles, skills and rules are found.
pub trait Guides: Send + Sync + 'static {
    /// The role of a name.
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Role>;

    /// The skill of a name.
    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Skill>;

    /// All skills, by their names.
    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>>;

    /// The rules of the workspace, if it has some.
    fn rules<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>>;
}

/// What a model is told before anything is said.
pub(crate) fn system(
    base: &str,
    role: Option<&Role>,
    rules: Option<&str>,
    skills: &[Skill],
    more: Option<&str>,
) -> String {
    let mut text = base.trim_end().to_owned();
    let mut add = |part: &str| {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(part.trim());
    };
    if let Some(role) = role {
        add(&role.text);
    }
    if let Some(rules) = rules {
        add(&format!(
            "The rules of this workspace, from its AGENTS.md:\n\n{rules}"
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
            "Skills that the tool `skill` tells you more of, when one is of use:\n{lines}"
        ));
    }
    if let Some(more) = more {
        add(more);
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

    fn given(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn variables_are_filled_in_and_all_else_is_left_alone() {
        for (text, all, filled) in [
            ("no variables", &[][..], Ok("no variables")),
            ("tag {{version}}!", &[("version", "1.2")], Ok("tag 1.2!")),
            ("{{ a }}{{a}}", &[("a", "{{a}}")], Ok("{{a}}{{a}}")),
            ("{{ not a name }} {{", &[], Ok("{{ not a name }} {{")),
            ("{{x", &[], Ok("{{x")),
            (
                "{{b}} {{a}}",
                &[],
                Err("the skill `release` needs `a`, `b`"),
            ),
            (
                "{{a}}",
                &[("b", "1")],
                Err("the skill `release` needs `a`; it knows no `b`"),
            ),
        ] {
            let came = skill(text).fill(&given(all));
            let came = came.as_deref().map_err(String::as_str);
            assert_eq!(came, filled, "{text}");
        }
    }

    #[test]
    fn all_that_guides_is_told_once_and_in_order() {
        let role = Role {
            name: "reviewer".to_owned(),
            description: String::new(),
            model: None,
            text: "You review.\n".to_owned(),
        };
        let told = system(
            "Base.",
            Some(&role),
            Some("Use tabs."),
            &[skill("{{version}}")],
            Some("Answer in JSON."),
        );
        assert_eq!(
            told,
            "Base.\n\nYou review.\n\n\
             The rules of this workspace, from its AGENTS.md:\n\nUse tabs.\n\n\
             Skills that the tool `skill` tells you more of, when one is of use:\n\
             - release: how to release (needs version)\n\n\
             Answer in JSON."
        );
        assert_eq!(system("Base.", None, None, &[], None), "Base.");
    }
}
