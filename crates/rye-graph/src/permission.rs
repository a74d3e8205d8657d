//! Permissions: patterns of the tools that a graph may call. Without permissions it may call none.

/// A pattern of permitted calls, such as `rye.execute.tool.rye.bash.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) pattern: String,
    pub(crate) at: usize,
}

/// The permission that a call of a tool requires.
pub(crate) fn required_permission(item: &str) -> String {
    format!("rye.execute.tool.{}", item.replace('/', "."))
}

impl Permission {
    /// Whether the pattern matches a required permission. `*` matches any characters.
    pub(crate) fn covers(&self, required: &str) -> bool {
        let mut parts = self.pattern.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = required.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<_> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_only_covered_tools() {
        for (pattern, item, covered) in [
            ("rye.execute.tool.rye.bash.*", "rye/bash/bash", true),
            ("rye.execute.tool.rye.bash.bash", "rye/bash/bash", true),
            ("rye.execute.tool.rye.bash", "rye/bash/bash", false),
            ("rye.execute.tool.*", "a", true),
            ("*", "a", true),
            ("rye.execute.tool.*.bash", "rye/bash/bash", true),
            ("rye.execute.tool.*.bash", "rye/bash/bash2", false),
            ("rye.execute.tool.a*b*c", "a/x/b/y/c", true),
            ("rye.execute.tool.a*b*c", "a/c/b", false),
            ("rye.execute.tool.aa*a", "aa", false),
            ("", "a", false),
        ] {
            let pattern = Permission {
                pattern: pattern.to_owned(),
                at: 0,
            };
            assert_eq!(
                pattern.covers(&required_permission(item)),
                covered,
                "{pattern:?} {item}"
            );
        }
    }
}
