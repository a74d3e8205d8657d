//! Approval policy: decides whether an agent's call is allowed, needs a person's approval, or is
//! denied.

use serde::{Deserialize, Serialize};

use crate::tool_provider::{ResolvedTool, ReviewReason};

pub use rye_protocol::Risk;

/// Key of a gate's context: the [`Risk`] of the call, `null` if it is unknown.
pub const RISK: &str = "risk";

/// Decision of the policy about a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The call runs.
    Allow,
    /// A person must approve the call.
    #[default]
    Ask,
    /// The call is denied.
    Deny,
}

/// Approval policy. The first matching rule applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Rules in order of precedence.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What happens to a turn that reaches a limit, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitPolicy>,
}

/// What happens to a turn that reaches a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPolicy {
    /// The turn ends with an error.
    #[default]
    End,
    /// A person is asked to increase the limit.
    Ask,
}

/// A rule of the policy. Conditions that are not set match all calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Tool id `SERVICE:ID`; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Risk levels that match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risk: Vec<Risk>,
    /// Spaces that match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub space: Vec<String>,
    /// Decision for matching calls.
    pub action: Mode,
}

impl Rule {
    fn matches(&self, tool: &str, action: Option<Risk>, from: Option<&String>) -> bool {
        let name = self.tool.as_deref();
        let risk = |risk: &Risk| action == Some(*risk);
        let space = |space: &String| from == Some(space);
        name.is_none_or(|pattern| matches_pattern(pattern, tool))
            && (self.risk.is_empty() || self.risk.iter().any(risk))
            && (self.space.is_empty() || self.space.iter().any(space))
    }
}

impl Policy {
    /// Decides about a call of `tool`. If no rule matches, a call needs approval if the tool
    /// declares it, if its risk is high or not stated, or if there is a reason for it. A reason
    /// that depends on the parameters raises the risk to high.
    pub fn decide(
        &self,
        tool: &str,
        action: &ResolvedTool,
        reasons: &[ReviewReason],
        default: Mode,
    ) -> Mode {
        let space = action.space.as_ref();
        let is_risky = reasons.iter().any(|reason| !reason.applies_to_all_params);
        let risk = if is_risky {
            action.risk.max(Some(Risk::High))
        } else {
            action.risk
        };
        let must_ask = reasons.iter().any(|reason| !reason.can_be_allowed_by_rule);
        match self.rule_mode(tool, risk, space) {
            Some(Mode::Allow) if must_ask => return Mode::Ask,
            Some(mode) => return mode,
            None => {}
        }
        let is_low_risk = matches!(action.risk, Some(Risk::Low | Risk::Medium));
        match default {
            Mode::Allow if !is_low_risk || action.requires_approval || !reasons.is_empty() => {
                Mode::Ask
            }
            other => other,
        }
    }
}

impl Policy {
    /// Decides about a call of a built-in tool. If no rule matches, the call needs approval if the
    /// tool requires it or its risk is high.
    pub fn decide_builtin(&self, tool: &str, risk: Option<Risk>, requires_approval: bool) -> Mode {
        let name = format!("builtin:{tool}");
        let mode = self.rule_mode(&name, risk, None);
        mode.unwrap_or(if requires_approval || risk >= Some(Risk::High) {
            Mode::Ask
        } else {
            Mode::Allow
        })
    }

    fn rule_mode(&self, tool: &str, risk: Option<Risk>, space: Option<&String>) -> Option<Mode> {
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.matches(tool, risk, space))?;
        Some(rule.action)
    }
}

/// Whether a name matches a pattern, in which `*` matches any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut segments = pattern.split('*');
    let first = segments.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut segments = segments.peekable();
    if segments.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            return rest.ends_with(segment);
        }
        match rest.find(segment) {
            Some(at) => rest = &rest[at + segment.len()..],
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
            effect: crate::tool::EffectClass::default(),
            drift: None,
            hash: String::new(),
            components: Vec::new(),
            handle: Arc::new(()),
        }
    }

    #[test]
    fn star_matches_any_text() {
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
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn high_or_unknown_risk_needs_approval() {
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
    fn reason_needs_approval_unless_a_rule_may_allow_it() {
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
        for (policy, unconditional, parameter_reason, tool_reason) in [
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
            assert_eq!(decide(&policy, reason(false, false)), unconditional);
            assert_eq!(decide(&policy, reason(true, false)), parameter_reason);
            assert_eq!(decide(&policy, reason(true, true)), tool_reason);
        }
    }

    #[test]
    fn first_matching_rule_applies() {
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
