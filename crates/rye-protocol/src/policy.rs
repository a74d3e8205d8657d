//! Approval policy: decides whether a call of an agent, an MCP client or a graph is allowed, needs
//! a person's approval, or is denied.

use serde::{Deserialize, Serialize};

pub use crate::Risk;

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

/// How much the agent of a session may do without asking a person.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// Every command, and every call that changes something, asks.
    Ask,
    /// What the sandbox confines or the policy allows runs without asking.
    #[default]
    Auto,
    /// Commands and calls that change something are denied.
    ReadOnly,
}

impl PermissionMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Ask, Self::Auto, Self::ReadOnly];

    /// The serialised name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Auto => "auto",
            Self::ReadOnly => "read_only",
        }
    }

    /// The mode with a serialised name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether this is the mode of a new session.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Restricts the policy's decision about a call. A call of low risk changes nothing that
    /// matters, so it is not restricted.
    pub fn restrict(self, decision: Mode, risk: Option<Risk>) -> Mode {
        match (self, decision) {
            _ if risk == Some(Risk::Low) => decision,
            (Self::ReadOnly, _) => Mode::Deny,
            (Self::Ask, Mode::Allow) => Mode::Ask,
            _ => decision,
        }
    }
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

/// A reason why a person must approve a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewReason {
    /// One-line description.
    pub text: String,
    /// A rule of the policy may allow the call regardless.
    pub can_be_allowed_by_rule: bool,
    /// The reason does not depend on the parameters, so an approval for the session or project
    /// also covers later calls.
    pub applies_to_all_params: bool,
}

/// Everything that the policy considers about a call.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'a> {
    /// Tool id `SERVICE:ID`; the service of an agent's own tools is `builtin`.
    pub tool: &'a str,
    /// Risk level, if stated.
    pub risk: Option<Risk>,
    /// Space of the tool's item.
    pub space: Option<&'a str>,
    /// The tool declares that a person must approve it.
    pub requires_approval: bool,
    /// The kernel confines the call to the files that its caller may change anyway, without
    /// network. Its risk alone then needs no approval.
    pub is_confined: bool,
    /// The tool differs from its accepted definition.
    pub has_drift: bool,
    /// Further reasons for an approval.
    pub reasons: &'a [ReviewReason],
    /// Mode of a call without a stated risk that no rule matches.
    pub unrated: Mode,
    /// Mode of a call that no rule matches and that has no reason for an approval.
    pub default: Mode,
}

impl<'a> CallFacts<'a> {
    /// Facts about a call that runs unless something requires approval.
    pub fn new(tool: &'a str, risk: Option<Risk>) -> Self {
        Self {
            tool,
            risk,
            space: None,
            requires_approval: false,
            is_confined: false,
            has_drift: false,
            reasons: &[],
            unrated: Mode::Allow,
            default: Mode::Allow,
        }
    }
}

/// Decision of the policy about a call, and its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What happens to the call.
    pub mode: Mode,
    /// What decided.
    pub cause: Cause,
}

/// What decided about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A rule of the policy, at this index.
    Rule(usize),
    /// The tool differs from its accepted definition.
    Drift,
    /// The reason at this index of [`CallFacts::reasons`].
    Reason(usize),
    /// The tool declares that a person must approve it.
    Declared,
    /// The risk is high or critical.
    HighRisk,
    /// The tool does not state its risk.
    Unrated,
    /// No rule matches, and nothing requires approval.
    Default,
}

impl Cause {
    /// Explanation for people. [`CallFacts::reasons`] has the text of a reason.
    pub fn text(self) -> &'static str {
        match self {
            Self::Rule(_) => "a rule of the approval policy applies",
            Self::Drift => "the tool differs from its accepted definition",
            Self::Reason(_) => "of its parameters or its sandbox",
            Self::Declared => "the tool requires approval",
            Self::HighRisk => "its risk is high",
            Self::Unrated => "its risk is unknown",
            Self::Default => "no rule of the approval policy allows it",
        }
    }
}

impl Rule {
    fn matches(&self, tool: &str, risk: Option<Risk>, space: Option<&str>) -> bool {
        let name = self.tool.as_deref();
        name.is_none_or(|pattern| matches_pattern(pattern, tool))
            && (self.risk.is_empty() || self.risk.iter().any(|it| risk == Some(*it)))
            && (self.space.is_empty() || self.space.iter().any(|it| space == Some(it)))
    }
}

impl Policy {
    /// Decides about a call. The first matching rule applies; it cannot allow a drift or a reason
    /// that no rule may allow. If no rule matches, any reason for an approval makes the
    /// call ask. A reason that depends on the parameters raises the risk to high.
    pub fn decide(&self, call: &CallFacts<'_>) -> Decision {
        let decision = |mode, cause| Decision { mode, cause };
        let mut reasons = call.reasons.iter();
        let unconditional = reasons.position(|reason| !reason.can_be_allowed_by_rule);
        let must_ask = unconditional.map(Cause::Reason);
        let must_ask = call.has_drift.then_some(Cause::Drift).or(must_ask);
        let is_risky = call.reasons.iter().any(|it| !it.applies_to_all_params);
        let raised = is_risky.then_some(Risk::High);
        let risk = call.risk.max(raised);
        let mut rules = self.rules.iter();
        if let Some(at) = rules.position(|rule| rule.matches(call.tool, risk, call.space)) {
            return match (self.rules[at].action, must_ask) {
                (Mode::Allow, Some(cause)) => decision(Mode::Ask, cause),
                (mode, _) => decision(mode, Cause::Rule(at)),
            };
        }
        let cause = match (call.default, call.risk) {
            (Mode::Deny, _) => return decision(Mode::Deny, Cause::Default),
            _ if must_ask.is_some() => must_ask,
            _ if !call.reasons.is_empty() => Some(Cause::Reason(0)),
            _ if call.requires_approval => Some(Cause::Declared),
            (_, None) if call.unrated == Mode::Deny => {
                return decision(Mode::Deny, Cause::Unrated);
            }
            _ if call.is_confined => None,
            (_, Some(Risk::High | Risk::Critical)) => Some(Cause::HighRisk),
            (_, None) if call.unrated == Mode::Ask => Some(Cause::Unrated),
            _ => None,
        };
        match cause {
            Some(cause) => decision(Mode::Ask, cause),
            None => decision(call.default, Cause::Default),
        }
    }
}

/// Whether a name matches a pattern, in which `*` matches any text.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
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
    use super::*;

    #[test]
    fn permission_mode_restricts_what_the_policy_decided() {
        use Mode::{Allow, Ask, Deny};
        let table = [
            (PermissionMode::Auto, [Allow, Ask, Deny]),
            (PermissionMode::Ask, [Ask, Ask, Deny]),
            (PermissionMode::ReadOnly, [Deny, Deny, Deny]),
        ];
        for (mode, expected) in table {
            for (decision, expected) in [Allow, Ask, Deny].into_iter().zip(expected) {
                for risk in [None, Some(Risk::Medium), Some(Risk::Critical)] {
                    assert_eq!(mode.restrict(decision, risk), expected, "{mode:?} {risk:?}");
                }
                assert_eq!(mode.restrict(decision, Some(Risk::Low)), decision);
            }
            assert_eq!(PermissionMode::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(PermissionMode::parse("yolo"), None);
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
            ("*-mini*", "x/gpt-mini-2", true),
            ("ä*ü", "äöü", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn rule(tool: Option<&str>, risk: &[Risk], space: &[&str], action: Mode) -> Rule {
        Rule {
            tool: tool.map(str::to_owned),
            risk: risk.to_vec(),
            space: space.iter().map(|it| (*it).to_owned()).collect(),
            action,
        }
    }

    fn policy(rules: Vec<Rule>) -> Policy {
        Policy {
            rules,
            limits: None,
        }
    }

    fn reason(can_be_allowed_by_rule: bool, applies_to_all_params: bool) -> ReviewReason {
        ReviewReason {
            text: String::new(),
            can_be_allowed_by_rule,
            applies_to_all_params,
        }
    }

    fn decide(policy: &Policy, call: CallFacts<'_>) -> (Mode, Cause) {
        let Decision { mode, cause } = policy.decide(&call);
        (mode, cause)
    }

    #[test]
    fn call_without_a_rule_is_decided_by_its_facts() {
        use Mode::{Allow, Ask, Deny};
        let facts = |risk| CallFacts::new("rye:deploy", risk);
        let low = facts(Some(Risk::Low));
        let weak = [reason(true, true)];
        let strong = [reason(true, true), reason(false, false)];
        let table = [
            (low, Allow, Cause::Default),
            (facts(Some(Risk::Medium)), Allow, Cause::Default),
            (facts(Some(Risk::High)), Ask, Cause::HighRisk),
            (facts(Some(Risk::Critical)), Ask, Cause::HighRisk),
            (facts(None), Allow, Cause::Default),
            (
                CallFacts {
                    unrated: Ask,
                    ..facts(None)
                },
                Ask,
                Cause::Unrated,
            ),
            (
                CallFacts {
                    unrated: Ask,
                    ..low
                },
                Allow,
                Cause::Default,
            ),
            (
                CallFacts {
                    unrated: Deny,
                    ..facts(None)
                },
                Deny,
                Cause::Unrated,
            ),
            (
                CallFacts {
                    requires_approval: true,
                    ..low
                },
                Ask,
                Cause::Declared,
            ),
            (
                CallFacts {
                    reasons: &weak,
                    ..low
                },
                Ask,
                Cause::Reason(0),
            ),
            (
                CallFacts {
                    reasons: &strong,
                    ..low
                },
                Ask,
                Cause::Reason(1),
            ),
            (
                CallFacts {
                    has_drift: true,
                    ..low
                },
                Ask,
                Cause::Drift,
            ),
            (
                CallFacts {
                    default: Ask,
                    ..low
                },
                Ask,
                Cause::Default,
            ),
            (
                CallFacts {
                    default: Deny,
                    ..low
                },
                Deny,
                Cause::Default,
            ),
            (
                CallFacts {
                    default: Deny,
                    requires_approval: true,
                    ..low
                },
                Deny,
                Cause::Default,
            ),
        ];
        for (call, mode, cause) in table {
            assert_eq!(decide(&Policy::default(), call), (mode, cause), "{call:?}");
        }
    }

    #[test]
    fn confined_call_asks_for_every_reason_but_its_risk() {
        use Mode::{Allow, Ask, Deny};
        let facts = |risk| CallFacts {
            is_confined: true,
            unrated: Ask,
            ..CallFacts::new("rye:build", risk)
        };
        let (high, unrated) = (facts(Some(Risk::High)), facts(None));
        let reasons = [reason(true, true)];
        let by_rule = Cause::Rule(0);
        let all = |action| policy(vec![rule(None, &[Risk::High], &[], action)]);
        let none = Policy::default();
        let table = [
            (&none, high, Allow, Cause::Default),
            (&none, unrated, Allow, Cause::Default),
            (
                &none,
                CallFacts {
                    requires_approval: true,
                    ..high
                },
                Ask,
                Cause::Declared,
            ),
            (
                &none,
                CallFacts {
                    reasons: &reasons,
                    ..high
                },
                Ask,
                Cause::Reason(0),
            ),
            (
                &none,
                CallFacts {
                    has_drift: true,
                    ..high
                },
                Ask,
                Cause::Drift,
            ),
            (
                &none,
                CallFacts {
                    default: Ask,
                    ..high
                },
                Ask,
                Cause::Default,
            ),
            (
                &none,
                CallFacts {
                    default: Deny,
                    ..high
                },
                Deny,
                Cause::Default,
            ),
            (
                &none,
                CallFacts {
                    unrated: Deny,
                    ..unrated
                },
                Deny,
                Cause::Unrated,
            ),
            (&all(Ask), high, Ask, by_rule),
            (&all(Deny), high, Deny, by_rule),
        ];
        for (policy, call, mode, cause) in table {
            assert_eq!(decide(policy, call), (mode, cause), "{call:?}");
        }
    }

    #[test]
    fn rule_decides_unless_a_reason_must_be_asked_about() {
        use Mode::{Allow, Ask, Deny};
        let all = |action| policy(vec![rule(None, &[], &[], action)]);
        let low_risk = policy(vec![rule(None, &[Risk::Low, Risk::Medium], &[], Allow)]);
        let high_risk = policy(vec![rule(None, &[Risk::High], &[], Deny)]);
        let by_rule = Cause::Rule(0);
        let (strict, by_params, by_tool) = (
            reason(false, false),
            reason(true, false),
            reason(true, true),
        );
        let table = [
            (all(Allow), &strict, Ask, Cause::Reason(0)),
            (all(Allow), &by_params, Allow, by_rule),
            (all(Allow), &by_tool, Allow, by_rule),
            (all(Ask), &strict, Ask, by_rule),
            (all(Deny), &strict, Deny, by_rule),
            // A reason that depends on the parameters raises the risk.
            (low_risk.clone(), &strict, Ask, Cause::Reason(0)),
            (low_risk.clone(), &by_params, Ask, Cause::Reason(0)),
            (low_risk, &by_tool, Allow, by_rule),
            (high_risk.clone(), &by_params, Deny, by_rule),
            (high_risk, &by_tool, Ask, Cause::Reason(0)),
        ];
        for (policy, reason, mode, cause) in table {
            let call = CallFacts {
                reasons: std::slice::from_ref(reason),
                ..CallFacts::new("rye:write", Some(Risk::Low))
            };
            assert_eq!(
                decide(&policy, call),
                (mode, cause),
                "{policy:?} {reason:?}"
            );
        }
        let drifted = CallFacts {
            has_drift: true,
            ..CallFacts::new("mcp:a/b", Some(Risk::Low))
        };
        assert_eq!(decide(&all(Allow), drifted), (Ask, Cause::Drift));
        assert_eq!(decide(&all(Deny), drifted), (Deny, by_rule));
    }

    #[test]
    fn first_matching_rule_applies() {
        let policy = policy(vec![
            rule(Some("rye:dep*"), &[], &["user"], Mode::Deny),
            rule(Some("rye:deploy"), &[], &[], Mode::Allow),
        ]);
        let facts = |tool, space| CallFacts {
            space: Some(space),
            ..CallFacts::new(tool, Some(Risk::High))
        };
        let table = [
            (facts("rye:deploy", "user"), (Mode::Deny, Cause::Rule(0))),
            (
                facts("rye:deploy", "project"),
                (Mode::Allow, Cause::Rule(1)),
            ),
            (facts("rye:other", "project"), (Mode::Ask, Cause::HighRisk)),
        ];
        for (call, expected) in table {
            assert_eq!(decide(&policy, call), expected);
        }
    }
}
