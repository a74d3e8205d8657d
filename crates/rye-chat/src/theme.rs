//! Colour themes: the palette of the terminal, or colours for a light or a dark background.

use anstyle::{Ansi256Color, AnsiColor, Color, Effects, Style};

/// Which colours the chat uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Theme {
    /// No colours
    None,
    /// The palette of the terminal
    #[default]
    Terminal,
    /// Colours for a light background
    Light,
    /// Colours for a dark background
    Dark,
}

impl Theme {
    /// A style in the colours of the theme.
    pub(crate) fn apply(self, style: Style) -> Style {
        match self {
            Self::None => Style::new(),
            Self::Terminal => style,
            Self::Light | Self::Dark => {
                let is_dark = self == Self::Dark;
                let pick = |light: u8, dark: u8| if is_dark { dark } else { light };
                let number = match style.get_fg_color() {
                    Some(Color::Ansi(AnsiColor::Red)) => pick(160, 203),
                    Some(Color::Ansi(AnsiColor::Green)) => pick(28, 114),
                    Some(Color::Ansi(AnsiColor::Yellow)) => pick(130, 221),
                    Some(Color::Ansi(AnsiColor::Blue)) => pick(26, 111),
                    Some(Color::Ansi(AnsiColor::Magenta)) => pick(127, 176),
                    Some(Color::Ansi(AnsiColor::Cyan)) => pick(30, 80),
                    // Terminals draw dimmed text in very different ways.
                    None if style.get_effects().contains(Effects::DIMMED) => pick(242, 246),
                    _ => return style,
                };
                let effects = style.get_effects().remove(Effects::DIMMED);
                style
                    .effects(effects)
                    .fg_color(Some(Ansi256Color(number).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{BOLD, DIM, Line, PLAIN, RED};

    #[test]
    fn theme_replaces_colours_and_dimmed_text() {
        let line = Line::new("a", RED)
            .with("b", DIM)
            .with("c", BOLD)
            .with("d", PLAIN);
        for (theme, expected) in [
            (Theme::None, "abcd"),
            (
                Theme::Terminal,
                "\x1b[31ma\x1b[0m\x1b[2mb\x1b[0m\x1b[1mc\x1b[0md",
            ),
            (
                Theme::Light,
                "\x1b[38;5;160ma\x1b[0m\x1b[38;5;242mb\x1b[0m\x1b[1mc\x1b[0md",
            ),
            (
                Theme::Dark,
                "\x1b[38;5;203ma\x1b[0m\x1b[38;5;246mb\x1b[0m\x1b[1mc\x1b[0md",
            ),
        ] {
            assert_eq!(line.ansi(theme), expected, "{theme:?}");
        }
    }
}
