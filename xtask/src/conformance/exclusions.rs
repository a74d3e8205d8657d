//! Scenarios that are excluded, each with a reason.

use anyhow::{Result, ensure};

use super::Role;

/// Scenarios that may fail.
#[derive(Debug)]
pub(super) struct Exclusions(Vec<Exclusion>);

#[derive(Debug)]
struct Exclusion {
    role: String,
    /// A name, or a prefix followed by `*`.
    scenario: String,
}

impl Exclusions {
    /// Parses lines of role, scenario and reason.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all = lines.map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            ensure!(
                words.len() > 3,
                "expected role, scenario and reason: `{line}`"
            );
            ensure!(
                ["server", "client"].contains(&words[0]),
                "unknown role `{}`",
                words[0]
            );
            Ok(Exclusion {
                role: words[0].to_owned(),
                scenario: words[1].to_owned(),
            })
        });
        all.collect::<Result<_>>().map(Self)
    }

    pub(super) fn contains(&self, role: Role, scenario: &str) -> bool {
        self.patterns(role)
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => scenario.starts_with(prefix),
                None => scenario == pattern,
            })
    }

    /// Whether a scenario is listed by its full name. Such a scenario must not pass.
    pub(super) fn contains_exact(&self, role: Role, scenario: &str) -> bool {
        self.patterns(role).any(|pattern| pattern == scenario)
    }

    fn patterns(&self, role: Role) -> impl Iterator<Item = &str> {
        let all = self
            .0
            .iter()
            .filter(move |exclusion| exclusion.role == role.name());
        all.map(|exclusion| exclusion.scenario.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_is_excluded_by_name_or_prefix_with_a_reason() {
        let text = "# why\n\nserver auth/* because of it\nserver one because of it\n";
        let exclusions = Exclusions::parse(text).unwrap();
        assert!(exclusions.contains(Role::Server, "auth/basic"));
        assert!(!exclusions.contains_exact(Role::Server, "auth/basic"));
        assert!(
            exclusions.contains(Role::Server, "one")
                && exclusions.contains_exact(Role::Server, "one")
        );
        assert!(!exclusions.contains(Role::Server, "one-more"));
        assert!(Exclusions::parse("server one").is_err());
        assert!(Exclusions::parse("host one because of it").is_err());
    }
}
