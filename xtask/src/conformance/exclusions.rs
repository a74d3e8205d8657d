//! Scenarios that do not apply, with the reason of each.

use anyhow::{Result, ensure};

use super::Role;

/// The scenarios that may fail.
#[derive(Debug)]
pub(super) struct Exclusions(Vec<Exclusion>);

#[derive(Debug)]
struct Exclusion {
    role: String,
    /// A name, or the beginning of some with a `*`.
    scenario: String,
}

impl Exclusions {
    /// Reads lines of role, scenario and reason.
    pub(super) fn read(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all = lines.map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            ensure!(words.len() > 3, "`{line}` does not say role, scenario, why");
            ensure!(
                ["server", "client"].contains(&words[0]),
                "there is no role `{}`",
                words[0]
            );
            Ok(Exclusion {
                role: words[0].to_owned(),
                scenario: words[1].to_owned(),
            })
        });
        all.collect::<Result<_>>().map(Self)
    }

    pub(super) fn has(&self, role: Role, scenario: &str) -> bool {
        self.of(role).any(|one| match one.strip_suffix('*') {
            Some(begin) => scenario.starts_with(begin),
            None => scenario == one,
        })
    }

    /// Whether it is excluded by its whole name, and so must not pass.
    pub(super) fn names(&self, role: Role, scenario: &str) -> bool {
        self.of(role).any(|one| one == scenario)
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &str> {
        let all = self.0.iter().filter(move |one| one.role == role.name());
        all.map(|one| one.scenario.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_excluded_by_its_name_or_its_beginning_and_with_a_reason() {
        let text = "# why\n\nserver auth/* because of it\nserver one because of it\n";
        let exclusions = Exclusions::read(text).unwrap();
        assert!(exclusions.has(Role::Server, "auth/basic"));
        assert!(!exclusions.names(Role::Server, "auth/basic"));
        assert!(exclusions.has(Role::Server, "one") && exclusions.names(Role::Server, "one"));
        assert!(!exclusions.has(Role::Server, "one-more"));
        assert!(Exclusions::read("server one").is_err());
        assert!(Exclusions::read("host one because of it").is_err());
    }
}
