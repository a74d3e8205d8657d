//! Renders Markdown as styled lines.

mod table;

use anstyle::{AnsiColor, Style};
use lillux::strip_control;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::highlight;
use crate::text::{BOLD, CYAN, DIM, Line, PLAIN};
use table::Table;

/// Renders Markdown at the given width.
pub(crate) fn render(source: &str, width: usize) -> Vec<Line> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    // Before parsing, which could split an escape sequence.
    let source = strip_control(source);
    let mut renderer = Renderer {
        width: width.max(8),
        ..Renderer::default()
    };
    for event in Parser::new_ext(&source, options) {
        renderer.on_event(event);
    }
    renderer.flush();
    renderer.lines
}

/// Bytes of a streaming text whose rendering is final: up to the last blank line outside a
/// code block.
pub(crate) fn stable_prefix_len(source: &str) -> usize {
    let (mut stable, mut at) = (0, 0);
    let mut fence: Option<&str> = None;
    for line in source.split_inclusive('\n') {
        at += line.len();
        let bare = line.trim();
        match fence {
            Some(mark)
                if bare.starts_with(mark) && bare.trim_start_matches(['`', '~']).is_empty() =>
            {
                fence = None;
                if line.ends_with('\n') {
                    stable = at;
                }
            }
            None if bare.starts_with("```") => fence = Some("```"),
            None if bare.starts_with("~~~") => fence = Some("~~~"),
            None if bare.is_empty() && line.ends_with('\n') => stable = at,
            _ => {}
        }
    }
    stable
}

/// Builds lines from Markdown events.
#[derive(Default)]
struct Renderer {
    width: usize,
    lines: Vec<Line>,
    /// The current line before wrapping.
    inline: Line,
    styles: Vec<Style>,
    /// Margins before each line, outermost first.
    margins: Vec<Margin>,
    /// Next number of each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// Language and text of the open code block.
    code: Option<(String, String)>,
    table: Option<Table>,
    /// Address of the open link, and where its text starts in `inline`.
    link: Option<(String, usize)>,
    /// A blank line comes before the next block.
    blank_pending: bool,
}

/// Margin of the first line of a block and of the lines after it.
struct Margin {
    first: Option<Line>,
    rest: Line,
}

impl Renderer {
    fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.push_text(&text);
            }
            Event::Code(code) => {
                let cyan = Some(AnsiColor::Cyan.into());
                self.inline.push(&code, self.current_style().fg_color(cyan));
            }
            // Models break lines on purpose: addresses, verses, lists without marks.
            Event::SoftBreak | Event::HardBreak => self.break_line(),
            Event::Rule => {
                self.start_block();
                let rule = "─".repeat(self.content_width().min(40));
                self.push_line(Line::new(&rule, DIM));
                self.blank_pending = true;
            }
            Event::TaskListMarker(done) => {
                let mark = if done { "[x] " } else { "[ ] " };
                self.inline.push(mark, self.current_style());
            }
            Event::Html(text) | Event::InlineHtml(text) => {
                self.push_text(text.trim_end_matches('\n'));
            }
            Event::FootnoteReference(name) => self.push_text(&format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.start_block(),
            Tag::Heading { level, .. } => {
                self.start_block();
                let is_title = level == HeadingLevel::H1;
                self.styles
                    .push(if is_title { BOLD.underline() } else { BOLD });
            }
            Tag::BlockQuote(_) => {
                self.start_block();
                let bar = Line::new("│ ", DIM);
                self.margins.push(Margin {
                    first: None,
                    rest: bar,
                });
                self.blank_pending = false;
            }
            Tag::CodeBlock(kind) => {
                self.start_block();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => info
                        .split([' ', ',', '{'])
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.start_block();
                } else {
                    self.flush();
                    self.blank_pending = false;
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(alignments) => {
                self.start_block();
                self.table = Some(Table {
                    alignments,
                    ..Table::default()
                });
            }
            Tag::Emphasis => self.styles.push(self.current_style().italic()),
            Tag::Strong => self.styles.push(self.current_style().bold()),
            Tag::Strikethrough => self.styles.push(self.current_style().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), self.inline.text().len()));
                self.styles.push(self.current_style().underline());
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.end_block();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.margins.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.blank_pending = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.margins.pop();
                self.blank_pending = false;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    table.row.push(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(std::mem::take(&mut table.row));
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for line in table.lines(self.content_width()) {
                        self.push_line(line);
                    }
                }
                self.blank_pending = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                self.end_link();
            }
            _ => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => self.inline.push(text, self.current_style()),
        }
    }

    fn current_style(&self) -> Style {
        self.styles.last().copied().unwrap_or(PLAIN)
    }

    fn item(&mut self) {
        self.flush();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number += 1;
                mark
            }
            _ => "• ".to_owned(),
        };
        let rest = Line::plain(&" ".repeat(Line::plain(&mark).width()));
        self.margins.push(Margin {
            first: Some(Line::new(&mark, CYAN)),
            rest,
        });
        self.blank_pending = false;
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else {
            return;
        };
        for line in code.lines() {
            let mut line_with_margin = Line::plain("  ");
            line_with_margin.extend(highlight::line(&language, line));
            for line in line_with_margin.wrap(self.content_width(), &Line::plain("  ")) {
                self.push_line(line);
            }
        }
        self.blank_pending = true;
    }

    /// Appends the address of a link, unless its text is the address.
    fn end_link(&mut self) {
        if let Some((address, from)) = self.link.take() {
            let text = self.inline.text();
            let shown = text.get(from..).unwrap_or_default();
            let bare = address.strip_prefix("mailto:").unwrap_or(&address);
            if shown != bare && !address.is_empty() {
                self.inline.push(&format!(" ({address})"), DIM);
            }
        }
    }

    fn start_block(&mut self) {
        self.flush();
        if self.blank_pending && !self.lines.is_empty() {
            let margin = self.margin();
            self.lines.push(margin);
        }
        self.blank_pending = false;
    }

    fn end_block(&mut self) {
        self.flush();
        self.blank_pending = true;
    }

    fn break_line(&mut self) {
        match &mut self.link {
            // The address of a link is compared with its complete text.
            Some(_) => self.push_text(" "),
            None => self.flush(),
        }
    }

    fn flush(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        if inline.spans.is_empty() {
            return;
        }
        for line in inline.wrap(self.content_width(), &Line::default()) {
            self.push_line(line);
        }
    }

    fn push_line(&mut self, line: Line) {
        let mut line_with_margin = self.margin();
        line_with_margin.extend(line);
        self.lines.push(line_with_margin);
    }

    fn margin(&mut self) -> Line {
        let mut line_with_margin = Line::default();
        for margin in &mut self.margins {
            match margin.first.take() {
                Some(first) => line_with_margin.extend(first),
                None => line_with_margin.extend(margin.rest.clone()),
            }
        }
        line_with_margin
    }

    /// Width beside the margins.
    fn content_width(&self) -> usize {
        let margins = self.margins.iter().map(|it| it.rest.width());
        self.width.saturating_sub(margins.sum()).max(8)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(source: &str, width: usize) -> String {
        let lines = render(source, width);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.text().trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    #[test]
    fn page_is_rendered() {
        let source = "# Title\n\nSome *words* and `code` that are **longer** than the width.\n\n\
            - one\n- two\n  1. first\n  2. second\n- [x] done\n\n> quoted\n> text\n\n\
            ```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n\
            | name | much | what it is |\n|---|--:|:-:|\n| a | 1 | the first |\n| b | 200 | the second one, which is rather long |\n\n\
            See [the page](https://example.org/) or <https://example.org/>.\n\n---\nend";
        insta::assert_snapshot!(text(source, 40));
    }

    #[test]
    fn page_is_rendered_on_a_narrow_screen() {
        let source = "## T\n\n- a list of words\n\n| a | b | c |\n|-|-|-|\n| one two three | four five | six |";
        insta::assert_snapshot!(text(source, 16));
    }

    #[test]
    fn single_line_breaks_are_kept() {
        let table = [
            ("one\ntwo  \nthree", "one\ntwo\nthree"),
            ("- one\n  two\n- three", "• one\n  two\n• three"),
            ("> one\n> two", "│ one\n│ two"),
            ("[a\nb](http://x) c", "a b (http://x) c"),
        ];
        for (source, expected) in table {
            assert_eq!(text(source, 40), expected, "{source:?}");
        }
    }

    #[test]
    fn stable_prefix_ends_at_a_blank_line_outside_code() {
        let table = [
            ("", ""),
            ("one", ""),
            ("one\n", ""),
            ("one\n\n", "one\n\n"),
            ("one\n\ntwo", "one\n\n"),
            ("```\na\n\nb", ""),
            ("```\na\n\nb\n```\n", "```\na\n\nb\n```\n"),
            ("x\n\n```py\na\n\n", "x\n\n"),
            ("~~~\n```\n\n~~~\nafter", "~~~\n```\n\n~~~\n"),
        ];
        for (source, expected) in table {
            assert_eq!(&source[..stable_prefix_len(source)], expected, "{source:?}");
        }
    }

    proptest! {
        #[test]
        fn rendered_lines_fit_the_width(source in "[-a-z0-9 #*`>|\\n\\[\\]()!~漢.]{0,200}", width in 24..80_usize) {
            for line in render(&source, width) {
                // Deeply nested margins may leave no room at all.
                prop_assert!(line.width() <= width.max(8) + 24, "{:?}", line.text());
            }
        }

        #[test]
        fn stable_prefix_never_shrinks(source in "[a-z`\\n #-]{0,120}", more in "[a-z`\\n #-]{0,60}") {
            let before = stable_prefix_len(&source);
            prop_assert!(source.is_char_boundary(before));
            prop_assert!(stable_prefix_len(&(source.clone() + &more)) >= before);
        }
    }
}
