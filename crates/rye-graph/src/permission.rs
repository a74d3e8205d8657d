//! Permissions: what the actions of a graph may call. None is nothing.

/// A pattern of what may be called: `rye.execute.tool.rye.bash.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) pattern: String,
    pub(crate) at: usize,
}

/// What a call of a tool needs.
pub(crate) fn needed(item: &str) -> String {
    format!("rye.execute.tool.{}", item.replace('/', "."))
}

impl Permission {
    /// Whether it covers what a call needs. `*` stands for any characters.
    pub(crate) fn covers(&self, needed: &str) -> bool {
        let mut parts = self.pattern.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = needed.strip_prefix(first) else {
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
    fn a_pattern_covers_what_it_says_and_nothing_else() {
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
            assert_eq!(pattern.covers(&needed(item)), covered, "{pattern:?} {item}");
        }
    }
}
