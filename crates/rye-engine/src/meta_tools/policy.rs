//! What may be done without asking: data, not code.

use serde::{Deserialize, Serialize};

use super::{ResolvedTool, ReviewReason, Risk};

/// What becomes of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It is made.
    Allow,
    /// A person is asked.
    #[default]
    Ask,
    /// It is refused.
    Deny,
}

/// What becomes of calls. The first rule that fits counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// In order.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What becomes of a turn that reaches a limit, where this says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitPolicy>,
}

/// What becomes of a turn that reaches a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPolicy {
    /// It ends, visibly.
    #[default]
    End,
    /// A person is asked for more.
    Ask,
}

/// What becomes of some calls. What it does not say fits all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The action, `SERVICE:ID`; `*` stands for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Of these risks alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risk: Vec<Risk>,
    /// From these spaces alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub space: Vec<String>,
    /// What becomes of them.
    pub action: Mode,
}

impl Rule {
    fn fits(&self, tool: &str, action: Option<Risk>, from: Option<&String>) -> bool {
        let name = self.tool.as_deref();
        let risk = |risk: &Risk| action == Some(*risk);
        let space = |space: &String| from == Some(space);
        name.is_none_or(|pattern| fits(pattern, tool))
            && (self.risk.is_empty() || self.risk.iter().any(risk))
            && (self.space.is_empty() || self.space.iter().any(space))
    }
}

impl Policy {
    /// What becomes of a call of `tool`. Where no rule fits, what says that it needs an
    /// approval is asked about, as is what can do much harm, or does not say how much, and
    /// what there is a reason to ask about. A reason in the parameters makes the risk high.
    pub(super) fn decide(
        &self,
        tool: &str,
        action: &ResolvedTool,
        reasons: &[ReviewReason],
        otherwise: Mode,
    ) -> Mode {
        let space = action.space.as_ref();
        let is_risky = reasons.iter().any(|reason| !reason.applies_to_all_params);
        let risk = if is_risky {
            action.risk.max(Some(Risk::High))
        } else {
            action.risk
        };
        let must_ask = reasons.iter().any(|reason| !reason.can_be_allowed_by_rule);
        match self.of_rules(tool, risk, space) {
            Some(Mode::Allow) if must_ask => return Mode::Ask,
            Some(mode) => return mode,
            None => {}
        }
        let harmless = matches!(action.risk, Some(Risk::Low | Risk::Medium));
        match otherwise {
            Mode::Allow if !harmless || action.requires_approval || !reasons.is_empty() => {
                Mode::Ask
            }
            other => other,
        }
    }
}

impl Policy {
    /// What becomes of a call of one of the agent's own tools, where no rule fits: one that
    /// wants to be asked about is, as is one that can do much harm.
    pub(crate) fn decide_own(&self, tool: &str, risk: Option<Risk>, asks: bool) -> Mode {
        let name = format!("builtin:{tool}");
        let mode = self.of_rules(&name, risk, None);
        mode.unwrap_or(if asks || risk >= Some(Risk::High) {
            Mode::Ask
        } else {
            Mode::Allow
        })
    }

    fn of_rules(&self, tool: &str, risk: Option<Risk>, space: Option<&String>) -> Option<Mode> {
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.fits(tool, risk, space))?;
        Some(rule.action)
    }
}

/// Whether a pattern fits a name; `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn action(risk: Option<Risk>, space: &str) -> ResolvedTool {
        ResolvedTool {
            id: "deploy".to_owned(),
            description: String::new(),
            schema: None,
            risk,
            space: Some(space.to_owned()),
            requires_approval: false,
            effect: crate::tool::Effect::default(),
            drift: None,
            hash: String::new(),
            components: Vec::new(),
            handle: Arc::new(()),
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        let table = [
            ("rye:a/*", "rye:a/b/c", true),
            ("rye:a/*", "rye:b", false),
            ("*", "anything", true),
            ("rye:a", "rye:a", true),
            ("rye:a", "rye:ab", false),
            ("*:get", "web:get", true),
            ("*:get", "web:get2", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("aa*aa", "aaa", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_risky_or_says_nothing_is_asked_about() {
        let policy = Policy::default();
        let table = [
            (Some(Risk::Low), Mode::Allow),
            (Some(Risk::Medium), Mode::Allow),
            (Some(Risk::High), Mode::Ask),
            (Some(Risk::Critical), Mode::Ask),
            (None, Mode::Ask),
        ];
        for (risk, expected) in table {
            let action = action(risk, "project");
            assert_eq!(
                policy.decide("rye:deploy", &action, &[], Mode::Allow),
                expected
            );
            assert_eq!(
                policy.decide("rye:deploy", &action, &[], Mode::Deny),
                Mode::Deny
            );
        }
        let mut careful = action(Some(Risk::Low), "project");
        careful.requires_approval = true;
        assert_eq!(
            policy.decide("rye:deploy", &careful, &[], Mode::Allow),
            Mode::Ask
        );
    }

    #[test]
    fn a_reason_asks_and_only_some_reasons_may_be_allowed_by_a_rule() {
        let reason = |can_be_allowed_by_rule, applies_to_all_params| ReviewReason {
            text: String::new(),
            can_be_allowed_by_rule,
            applies_to_all_params,
        };
        let rule = |risk: &[Risk], action| Policy {
            rules: vec![Rule {
                risk: risk.to_vec(),
                action,
                ..Rule::default()
            }],
            limits: None,
        };
        let low = action(Some(Risk::Low), "project");
        let decide =
            |policy: &Policy, reason| policy.decide("rye:write", &low, &[reason], Mode::Allow);
        let low_risks = [Risk::Low, Risk::Medium];
        for (policy, hard, of_parameters, of_action) in [
            (Policy::default(), Mode::Ask, Mode::Ask, Mode::Ask),
            (rule(&[], Mode::Allow), Mode::Ask, Mode::Allow, Mode::Allow),
            (
                rule(&low_risks, Mode::Allow),
                Mode::Ask,
                Mode::Ask,
                Mode::Allow,
            ),
            (
                rule(&[Risk::High], Mode::Deny),
                Mode::Deny,
                Mode::Deny,
                Mode::Ask,
            ),
        ] {
            assert_eq!(decide(&policy, reason(false, false)), hard);
            assert_eq!(decide(&policy, reason(true, false)), of_parameters);
            assert_eq!(decide(&policy, reason(true, true)), of_action);
        }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule = |tool: &str, space: &[&str], action| Rule {
            tool: Some(tool.to_owned()),
            risk: Vec::new(),
            space: space.iter().map(|it| (*it).to_owned()).collect(),
            action,
        };
        let policy = Policy {
            rules: vec![
                rule("rye:dep*", &["user"], Mode::Deny),
                rule("rye:deploy", &[], Mode::Allow),
            ],
            limits: None,
        };
        let high = |space| action(Some(Risk::High), space);
        assert_eq!(
            policy.decide("rye:deploy", &high("user"), &[], Mode::Allow),
            Mode::Deny
        );
        assert_eq!(
            policy.decide("rye:deploy", &high("project"), &[], Mode::Allow),
            Mode::Allow
        );
        assert_eq!(
            policy.decide("rye:other", &high("project"), &[], Mode::Allow),
            Mode::Ask
        );
    }
}
