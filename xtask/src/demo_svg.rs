//! `cargo xtask demo-svg` and `cargo xtask chat-svg`: record `rye demo`, and a task in `rye chat`, as
//! animated SVGs of a terminal.
//!
//! The picture needs no script: two CSS animations scroll the text and uncover it line by line.
//! Without animations it shows the last screen.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::docs::build_binary;
use crate::output::print_line;
use crate::paths;
use crate::process::{capture, program};

/// A recording.
struct Picture {
    /// Path in the workspace.
    path: &'static str,
    /// The task of `cargo xtask` that writes it.
    task: &'static str,
    /// The command that it shows.
    command: &'static str,
}

const DEMO: Picture = Picture {
    path: "docs/demo.svg",
    task: "demo-svg",
    command: "rye demo",
};

const CHAT: Picture = Picture {
    path: "docs/chat.svg",
    task: "chat-svg",
    command: "rye chat",
};

/// The test that runs the task in the chat, and the variable with the file for its recording.
const CHAT_TEST: &str = "chat::recording::task_from_init_to_a_reviewed_diff_and_an_undo";
const CHAT_RECORDING: &str = "RYE_RECORDING";

/// Visible size of the terminal in characters.
const COLUMNS: usize = 96;
const ROWS: usize = 26;

/// Sizes in pixels.
const LINE_HEIGHT: usize = 18;
const CHARACTER_WIDTH: usize = 8;
const MARGIN: usize = 16;
const TITLE_BAR: usize = 32;

/// How long the last screen stays, in milliseconds.
const LAST_PAUSE: usize = 8000;

/// Builds `rye`, runs the demonstration and writes the picture.
pub(crate) fn main() -> Result<()> {
    let rye = build_binary("rye")?;
    let output = capture(&mut program(&rye, ["demo", "--quiet", "--color", "always"]))?;
    DEMO.write(&output)
}

/// Runs the test of a task in the chat and writes the picture of its conversation.
pub(crate) fn chat() -> Result<()> {
    let file = paths::workspace().join("target/chat-recording");
    let arguments = [
        "test", "-p", "rye", "--test", "it", "--", "--exact", CHAT_TEST,
    ];
    let mut command = program("cargo", arguments);
    capture(command.env(CHAT_RECORDING, &file))?;
    CHAT.write(&fs::read_to_string(&file).context("the test recorded nothing")?)
}

impl Picture {
    /// Renders the output of a terminal and writes the picture.
    fn write(&self, output: &str) -> Result<()> {
        let lines = parse(output);
        ensure!(!lines.is_empty(), "`{}` printed nothing", self.command);
        let path = paths::workspace().join(self.path);
        fs::write(&path, render(self, &lines))
            .with_context(|| format!("cannot write {}", path.display()))?;
        print_line!("wrote {}", self.path);
        Ok(())
    }
}

/// Attributes that ANSI escape sequences set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    is_bold: bool,
    is_dim: bool,
    /// The last digit of the colour code: 1 is red, 2 is green, 6 is cyan.
    colour: Option<u8>,
}

impl Style {
    /// Applies the parameters of one `ESC [ … m` sequence.
    fn apply(&mut self, parameters: &str) {
        for parameter in parameters.split(';') {
            match parameter.parse::<u8>().unwrap_or(0) {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                code @ (30..=37 | 90..=97) => self.colour = Some(code % 10),
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    /// CSS classes.
    fn classes(self) -> String {
        let bold = self.is_bold.then(|| "b".to_owned());
        let dim = self.is_dim.then(|| "d".to_owned());
        let colour = self.colour.map(|colour| format!("c{colour}"));
        let classes: Vec<_> = [bold, dim, colour].into_iter().flatten().collect();
        classes.join(" ")
    }
}

/// Text in one style.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    style: Style,
    text: String,
}

/// Splits output into lines of styled text. Lines that are too wide are cut and end in `…`.
fn parse(output: &str) -> Vec<Vec<Span>> {
    let mut style = Style::default();
    let lines = output.trim_end().lines();
    lines
        .map(|line| cut(parse_line(line, &mut style), COLUMNS))
        .collect()
}

fn parse_line(line: &str, style: &mut Style) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut push = |style: Style, text: &str| match spans.last_mut() {
        _ if text.is_empty() => {}
        Some(last) if last.style == style => last.text.push_str(text),
        _ => spans.push(Span {
            style,
            text: text.to_owned(),
        }),
    };
    let mut rest = line;
    while let Some((text, sequence)) = rest.split_once("\u{1b}[") {
        push(*style, text);
        let end = sequence.find(|character: char| character.is_ascii_alphabetic());
        let (parameters, after) = sequence.split_at(end.unwrap_or(sequence.len()));
        if after.starts_with('m') {
            style.apply(parameters);
        }
        rest = after.get(1..).unwrap_or_default();
    }
    push(*style, rest);
    spans
}

fn cut(mut spans: Vec<Span>, columns: usize) -> Vec<Span> {
    let width = |span: &Span| span.text.chars().count();
    if spans.iter().map(width).sum::<usize>() <= columns {
        return spans;
    }
    let mut left = columns - 1;
    for span in &mut spans {
        span.text = span.text.chars().take(left).collect();
        left -= width(span);
    }
    spans.retain(|span| !span.text.is_empty());
    if let Some(last) = spans.last_mut() {
        last.text.push('…');
    }
    spans
}

/// How long the picture rests after a line, in milliseconds: long enough to read it.
fn pause_after(line: &[Span]) -> usize {
    let text: String = line.iter().map(|span| span.text.as_str()).collect();
    match text.trim_start().chars().next() {
        None => 100,
        // A command that is about to run.
        Some('$' | '›') => 900,
        // The conclusion of a step.
        Some('→') => 2500,
        // Output is skimmed, prose is read.
        Some(_) if line.iter().any(|span| span.style.is_dim) => 200 + 2 * text.chars().count(),
        Some(_) => 250 + 8 * text.chars().count(),
    }
}

fn render(picture: &Picture, lines: &[Vec<Span>]) -> String {
    let Picture { task, command, .. } = picture;
    let width = COLUMNS * CHARACTER_WIDTH + 2 * MARGIN;
    let screen = ROWS * LINE_HEIGHT;
    let height = TITLE_BAR + screen + MARGIN;
    let text = lines.len() * LINE_HEIGHT;
    let Animation {
        seconds,
        scroll,
        uncover,
    } = animate(lines);
    let last_scroll = scroll_after(lines.len());
    let rows: String = lines.iter().zip(1..).map(row).collect();
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="A terminal in which {command} runs">
<!-- Generated by `cargo xtask {task}`. -->
<style>
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee9; white-space: pre }}
.b {{ font-weight: bold }}
.d {{ fill: #9aa5b8 }}
.c1 {{ fill: #ff7b72 }} .c2 {{ fill: #7ee787 }} .c3 {{ fill: #e3b341 }} .c4 {{ fill: #79c0ff }} .c5 {{ fill: #d2a8ff }} .c6 {{ fill: #76e3ea }}
#text {{ transform: translateY(-{last_scroll}px); animation: scroll {seconds}s step-end infinite }}
#cover {{ transform: translateY({text}px); animation: uncover {seconds}s step-end infinite }}
@keyframes scroll {{ {scroll}}}
@keyframes uncover {{ {uncover}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>
<circle cx="20" cy="16" r="5" fill="#ff5f57"/><circle cx="38" cy="16" r="5" fill="#febc2e"/><circle cx="56" cy="16" r="5" fill="#28c840"/>
<text x="{middle}" y="20" text-anchor="middle" class="d">{command}</text>
<svg x="{MARGIN}" y="{TITLE_BAR}" width="{inner}" height="{screen}">
<g id="text">
{rows}<rect id="cover" width="{inner}" height="{text}" fill="#161b22"/>
</g>
</svg>
</svg>
"##,
        middle = width / 2,
        inner = width - 2 * MARGIN,
    )
}

/// One line as an element; `number` counts from 1.
fn row((spans, number): (&Vec<Span>, usize)) -> String {
    if spans.is_empty() {
        return String::new();
    }
    let baseline = number * LINE_HEIGHT - 5;
    let spans = spans.iter().map(|span| {
        let text = escape(&span.text);
        match span.style.classes() {
            classes if classes.is_empty() => text,
            classes => format!(r#"<tspan class="{classes}">{text}</tspan>"#),
        }
    });
    let spans: String = spans.collect();
    format!("<text xml:space=\"preserve\" y=\"{baseline}\">{spans}</text>\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Keyframes of the two animations, and their duration.
struct Animation {
    seconds: String,
    scroll: String,
    uncover: String,
}

fn animate(lines: &[Vec<Span>]) -> Animation {
    let pauses: Vec<_> = lines.iter().map(|line| pause_after(line)).collect();
    let total = pauses.iter().sum::<usize>() + LAST_PAUSE;
    let mut elapsed = 0;
    let mut animation = Animation {
        seconds: format!("{}.{:03}", total / 1000, total % 1000),
        scroll: String::new(),
        uncover: String::new(),
    };
    for (pause, visible) in pauses.into_iter().zip(1..) {
        let thousandths = elapsed * 100_000 / total;
        let time = format!("{}.{:03}%", thousandths / 1000, thousandths % 1000);
        let scroll = format!(
            "{time} {{ transform: translateY(-{}px) }} ",
            scroll_after(visible)
        );
        let uncover = format!(
            "{time} {{ transform: translateY({}px) }} ",
            visible * LINE_HEIGHT
        );
        animation.scroll.push_str(&scroll);
        animation.uncover.push_str(&uncover);
        elapsed += pause;
    }
    animation
}

/// How far the text is scrolled, in pixels, if this many lines are visible.
fn scroll_after(lines: usize) -> usize {
    lines.saturating_sub(ROWS) * LINE_HEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<Span> {
        vec![Span {
            style: Style::default(),
            text: text.to_owned(),
        }]
    }

    #[test]
    fn escape_sequences_become_styles_that_last_until_they_are_reset() {
        let lines = parse("a\u{1b}[1m\u{1b}[36mb\nc\u{1b}[0md\u{1b}[2;31me\u{1b}[0m");
        let cyan = Style {
            is_bold: true,
            is_dim: false,
            colour: Some(6),
        };
        let texts = |line: &[Span]| line.iter().map(|s| s.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&lines[0]), ["a", "b"]);
        assert_eq!(lines[0][1].style, cyan);
        assert_eq!(texts(&lines[1]), ["c", "d", "e"]);
        assert_eq!(lines[1][0].style, cyan);
        assert_eq!(lines[1][1].style, Style::default());
        assert_eq!(lines[1][2].style.classes(), "d c1");
    }

    #[test]
    fn wide_lines_are_cut() {
        assert_eq!(cut(plain("abc"), 3), plain("abc"));
        assert_eq!(cut(plain("abcd"), 3), plain("ab…"));
    }

    #[test]
    fn text_is_escaped() {
        let text = row((&plain("<a & b>"), 1));
        assert!(text.contains("&lt;a &amp; b&gt;"), "{text}");
    }

    #[test]
    fn text_scrolls_once_the_screen_is_full() {
        assert_eq!(scroll_after(ROWS), 0);
        assert_eq!(scroll_after(ROWS + 2), 2 * LINE_HEIGHT);
    }

    #[test]
    fn every_line_is_uncovered_once() {
        let lines = [plain("$ rye demo"), Vec::new(), plain("→ done")];
        let animation = animate(&lines);
        assert_eq!(animation.uncover.matches('%').count(), lines.len());
        assert!(animation.uncover.starts_with("0.000%"));
        assert_eq!(animation.seconds, "11.500");
    }
}
