//! Results of the suite: a directory per scenario with a list of checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Role;
use super::exclusions::Exclusions;

/// Header of the table.
pub(super) const HEADER: &str = "revision    role    scenarios  checks  failed  scenarios excluded";

/// Length of the timestamp at the end of a directory name.
const TIMESTAMP_LEN: usize = "-2026-11-15T16-35-25-008Z".len();

/// Results of all scenarios of a role in one revision.
#[derive(Debug, Default)]
pub(super) struct Results {
    role: &'static str,
    /// Scenarios that are not excluded.
    scenarios: usize,
    /// Checks that passed.
    passed: usize,
    /// Checks that failed: scenario, check and reason.
    failed: Vec<String>,
    excluded: usize,
}

impl Results {
    pub(super) fn load(directory: &Path, role: Role, exclusions: &Exclusions) -> Result<Self> {
        let mut scenarios = BTreeMap::new();
        collect(directory, "", &mut scenarios)?;
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
            failed.push(format!("{name}: no checks"));
        }
        if !exclusions.contains(role, name) {
            self.scenarios += 1;
            self.passed += passed;
            self.failed.extend(failed);
            return;
        }
        self.excluded += 1;
        if failed.is_empty() && exclusions.contains_exact(role, name) {
            self.failed.push(format!("{name}: excluded but passes"));
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

    /// The failures, one line each.
    pub(super) fn failures(&self, revision: &str) -> Vec<String> {
        if self.scenarios == 0 {
            return vec![format!("  {revision} {}: no scenario ran", self.role)];
        }
        let failed = self.failed.iter();
        failed
            .map(|failure| format!("  {revision} {} {failure}", self.role))
            .collect()
    }
}

/// Collects the checks of all scenarios; the name of a scenario may contain a `/`.
fn collect(directory: &Path, prefix: &str, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    let entries = fs::read_dir(directory);
    let entries = entries.with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        let checks = path.join("checks.json");
        if checks.is_file() {
            let text = fs::read_to_string(&checks)?;
            let checks = serde_json::from_str(&text)
                .with_context(|| format!("cannot read {}", checks.display()))?;
            let length = name.len().saturating_sub(TIMESTAMP_LEN);
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
        let exclusions = "server stale not supported here\nserver not/* not supported here\n";
        let exclusions = Exclusions::parse(exclusions).unwrap();
        let mut results = Results::default();
        for (name, checks) in checks.as_object().unwrap() {
            results.add(name, checks.as_array().unwrap(), Role::Server, &exclusions);
        }
        results
    }

    #[test]
    fn warnings_and_scenarios_without_checks_fail() {
        let good = json!({ "status": "SUCCESS" });
        let results = results(&json!({
            "good": [good, good, { "status": "INFO" }],
            "weak": [good, { "status": "WARNING", "id": "x", "errorMessage": "hm" }],
            "empty": [{ "status": "INFO" }],
        }));
        assert_eq!((results.scenarios, results.passed), (3, 3));
        assert_eq!(results.failed, ["weak: x: hm", "empty: no checks"]);
    }

    #[test]
    fn excluded_scenario_may_fail_and_must_if_listed_by_name() {
        let bad = json!({ "status": "FAILURE", "id": "x", "errorMessage": "no" });
        let good = json!({ "status": "SUCCESS" });
        let results = results(&json!({ "not/one": [bad], "not/two": [good], "stale": [good] }));
        assert_eq!(results.failed, ["stale: excluded but passes"]);
        assert_eq!((results.scenarios, results.excluded), (0, 3));
    }
}
