//! What the suite found, as it writes it down: a folder for each scenario, in it a list of
//! checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Role;
use super::exclusions::Exclusions;

/// The head of the table.
pub(super) const HEAD: &str = "revision    role    scenarios  checks  failed  scenarios excluded";

/// How many characters of a folder's name are the time, with the hyphen before it.
const TIME: usize = "-2026-11-15T16-35-25-008Z".len();

/// What came of all scenarios of a role and revision.
#[derive(Debug, Default)]
pub(super) struct Results {
    role: &'static str,
    /// Scenarios that count.
    scenarios: usize,
    /// Checks that hold.
    passed: usize,
    /// What does not: scenario, check, why.
    failed: Vec<String>,
    excluded: usize,
}

impl Results {
    pub(super) fn read(folder: &Path, role: Role, exclusions: &Exclusions) -> Result<Self> {
        let mut scenarios = BTreeMap::new();
        collect(folder, "", &mut scenarios)?;
        let mut results = Results {
            role: role.name(),
            ..Results::default()
        };
        for (name, checks) in scenarios {
            let name = match role {
                Role::Server => name.strip_prefix("server-").unwrap_or(&name),
                Role::Client => &name,
            };
            results.add(name, &checks, role, exclusions);
        }
        Ok(results)
    }

    fn add(&mut self, name: &str, checks: &[Value], role: Role, exclusions: &Exclusions) {
        let status = |check: &Value| check["status"].as_str().unwrap_or_default().to_owned();
        let passed = checks.iter().filter(|check| status(check) == "SUCCESS");
        let passed = passed.count();
        let mut failed: Vec<_> = checks
            .iter()
            .filter(|check| ["FAILURE", "WARNING"].contains(&status(check).as_str()))
            .map(|check| {
                let id = check["id"].as_str().unwrap_or_default();
                let why = check["errorMessage"].as_str().unwrap_or_default();
                format!("{name}: {id}: {why}")
            })
            .collect();
        if passed == 0 && failed.is_empty() {
            failed.push(format!("{name}: nothing was checked"));
        }
        if !exclusions.has(role, name) {
            self.scenarios += 1;
            self.passed += passed;
            self.failed.extend(failed);
            return;
        }
        self.excluded += 1;
        if failed.is_empty() && exclusions.names(role, name) {
            self.failed.push(format!("{name}: is excluded, and passes"));
        }
    }

    pub(super) fn row(&self, revision: &str) -> String {
        let Self {
            role,
            scenarios,
            passed,
            failed,
            excluded,
        } = self;
        let failed = failed.len();
        format!("{revision}  {role:6}  {scenarios:9}  {passed:6}  {failed:6}  {excluded:18}")
    }

    /// What is wrong, a line each.
    pub(super) fn wrong(&self, revision: &str) -> Vec<String> {
        if self.scenarios == 0 {
            return vec![format!("  {revision} {}: no scenario ran", self.role)];
        }
        let failed = self.failed.iter();
        failed
            .map(|what| format!("  {revision} {} {what}", self.role))
            .collect()
    }
}

/// The checks of the scenarios in a folder; a scenario's name may have a `/`.
fn collect(folder: &Path, above: &str, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{above}{name}");
        let checks = path.join("checks.json");
        if checks.is_file() {
            let text = fs::read_to_string(&checks)?;
            let checks = serde_json::from_str(&text)
                .with_context(|| format!("cannot read {}", checks.display()))?;
            let length = name.len().saturating_sub(TIME);
            all.insert(name[..length].to_owned(), checks);
        } else if path.is_dir() {
            collect(&path, &format!("{name}/"), all)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn results(checks: &Value) -> Results {
        let exclusions = "server stale we do not\nserver not/* we do not\n";
        let exclusions = Exclusions::read(exclusions).unwrap();
        let mut results = Results::default();
        for (name, checks) in checks.as_object().unwrap() {
            results.add(name, checks.as_array().unwrap(), Role::Server, &exclusions);
        }
        results
    }

    #[test]
    fn a_warning_and_a_scenario_that_checks_nothing_do_not_pass() {
        let good = json!({ "status": "SUCCESS" });
        let results = results(&json!({
            "good": [good, good, { "status": "INFO" }],
            "weak": [good, { "status": "WARNING", "id": "x", "errorMessage": "hm" }],
            "empty": [{ "status": "INFO" }],
        }));
        assert_eq!((results.scenarios, results.passed), (3, 3));
        assert_eq!(
            results.failed,
            ["weak: x: hm", "empty: nothing was checked"]
        );
    }

    #[test]
    fn what_is_excluded_may_fail_and_must_if_it_is_named() {
        let bad = json!({ "status": "FAILURE", "id": "x", "errorMessage": "no" });
        let good = json!({ "status": "SUCCESS" });
        let results = results(&json!({ "not/one": [bad], "not/two": [good], "stale": [good] }));
        assert_eq!(results.failed, ["stale: is excluded, and passes"]);
        assert_eq!((results.scenarios, results.excluded), (0, 3));
    }
}
