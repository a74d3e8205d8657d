//! Markdown, as lines of a width.

mod table;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::highlight;
use crate::text::{BOLD, CYAN, Colour, DIM, Line, PLAIN, Style, harmless};
use table::Table;

/// The lines of a text.
pub(crate) fn render(source: &str, width: usize) -> Vec<Line> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    // Before it is taken apart: a sequence must not be cut in two.
    let lines: Vec<_> = source.split('\n').map(harmless).collect();
    let source = lines.join("\n");
    let mut page = Page::new(width.max(8));
    for event in Parser::new_ext(&source, options) {
        page.take(event);
    }
    page.flush();
    page.lines
}

/// How much of a text that is still being written does not change any more: up to the last
/// empty line that is in no code block.
pub(crate) fn settled(source: &str) -> usize {
    let (mut settled, mut at) = (0, 0);
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
                    settled = at;
                }
            }
            None if bare.starts_with("```") => fence = Some("```"),
            None if bare.starts_with("~~~") => fence = Some("~~~"),
            None if bare.is_empty() && line.ends_with('\n') => settled = at,
            _ => {}
        }
    }
    settled
}

struct Page {
    width: usize,
    lines: Vec<Line>,
    /// The text that is being put together.
    inline: Line,
    styles: Vec<Style>,
    /// What stands before each line, from outside in.
    margins: Vec<Margin>,
    lists: Vec<Option<u64>>,
    code: Option<(String, String)>,
    table: Option<Table>,
    link: Option<(String, usize)>,
    /// Whether an empty line comes before the next block.
    apart: bool,
}

/// What stands before the first line of something, and before all others.
struct Margin {
    first: Option<Line>,
    rest: Line,
}

impl Page {
    fn new(width: usize) -> Self {
        Self {
            width,
            lines: Vec::new(),
            inline: Line::default(),
            styles: Vec::new(),
            margins: Vec::new(),
            lists: Vec::new(),
            code: None,
            table: None,
            link: None,
            apart: false,
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.words(&text);
            }
            Event::Code(code) => self
                .inline
                .push(&code, self.style(|it| it.colour = Colour::Cyan)),
            Event::SoftBreak => self.words(" "),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.begin();
                let rule = "─".repeat(self.room().min(40));
                self.line(Line::new(&rule, DIM));
                self.apart = true;
            }
            Event::TaskListMarker(done) => {
                let mark = if done { "[x] " } else { "[ ] " };
                self.inline.push(mark, self.now());
            }
            Event::Html(text) | Event::InlineHtml(text) => self.words(text.trim_end_matches('\n')),
            Event::FootnoteReference(name) => self.words(&format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin(),
            Tag::Heading { level, .. } => {
                self.begin();
                let style = Style {
                    underline: level == HeadingLevel::H1,
                    ..BOLD
                };
                self.styles.push(style);
            }
            Tag::BlockQuote(_) => {
                self.begin();
                let bar = Line::new("│ ", DIM);
                self.margins.push(Margin {
                    first: None,
                    rest: bar,
                });
                self.apart = false;
            }
            Tag::CodeBlock(kind) => {
                self.begin();
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
                    self.begin();
                } else {
                    self.flush();
                    self.apart = false;
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(alignments) => {
                self.begin();
                self.table = Some(Table::new(alignments));
            }
            Tag::Emphasis => self.styles.push(self.style(|it| it.italic = true)),
            Tag::Strong => self.styles.push(self.style(|it| it.bold = true)),
            Tag::Strikethrough => self.styles.push(self.style(|it| it.struck = true)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), self.inline.text().len()));
                self.styles.push(self.style(|it| it.underline = true));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.apart = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.apart = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.margins.pop();
                self.apart = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.apart = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.margins.pop();
                self.apart = false;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for line in table.lines(self.room()) {
                        self.line(line);
                    }
                }
                self.apart = true;
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

    fn words(&mut self, text: &str) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => self.inline.push(text, self.now()),
        }
    }

    fn now(&self) -> Style {
        self.styles.last().copied().unwrap_or(PLAIN)
    }

    fn style(&self, change: impl FnOnce(&mut Style)) -> Style {
        let mut style = self.now();
        change(&mut style);
        style
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
        self.apart = false;
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else {
            return;
        };
        for line in code.lines() {
            let mut whole = Line::plain("  ");
            whole.extend(highlight::line(&language, line));
            for line in whole.wrap(self.room(), &Line::plain("  ")) {
                self.line(line);
            }
        }
        self.apart = true;
    }

    /// Where a link leads, unless that is what it says.
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

    /// A block begins.
    fn begin(&mut self) {
        self.flush();
        if self.apart && !self.lines.is_empty() {
            let margin = self.margin();
            self.lines.push(margin);
        }
        self.apart = false;
    }

    fn flush(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        if inline.spans.is_empty() {
            return;
        }
        for line in inline.wrap(self.room(), &Line::default()) {
            self.line(line);
        }
    }

    fn line(&mut self, line: Line) {
        let mut whole = self.margin();
        whole.extend(line);
        self.lines.push(whole);
    }

    fn margin(&mut self) -> Line {
        let mut whole = Line::default();
        for margin in &mut self.margins {
            match margin.first.take() {
                Some(first) => whole.extend(first),
                None => whole.extend(margin.rest.clone()),
            }
        }
        whole
    }

    /// How much is left beside the margins.
    fn room(&self) -> usize {
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
    fn a_page_looks_as_it_is_meant() {
        let source = "# Title\n\nSome *words* and `code` that are **longer** than the width.\n\n\
            - one\n- two\n  1. first\n  2. second\n- [x] done\n\n> said\n> by somebody\n\n\
            ```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n\
            | name | much | what it is |\n|---|--:|:-:|\n| a | 1 | the first |\n| b | 200 | the second one, which is rather long |\n\n\
            See [the page](https://example.org/) or <https://example.org/>.\n\n---\nend";
        insta::assert_snapshot!(text(source, 40));
    }

    #[test]
    fn a_narrow_screen_gets_it_too() {
        let source = "## T\n\n- a list of words\n\n| a | b | c |\n|-|-|-|\n| one two three | four five | six |";
        insta::assert_snapshot!(text(source, 16));
    }

    #[test]
    fn what_is_being_written_settles_at_empty_lines() {
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
            assert_eq!(&source[..settled(source)], expected, "{source:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_the_screen(source in "[-a-z0-9 #*`>|\\n\\[\\]()!~漢.]{0,200}", width in 24..80_usize) {
            for line in render(&source, width) {
                // Deeply nested margins may leave no room at all.
                prop_assert!(line.width() <= width.max(8) + 24, "{:?}", line.text());
            }
        }

        #[test]
        fn what_has_settled_stays(source in "[a-z`\\n #-]{0,120}", more in "[a-z`\\n #-]{0,60}") {
            let before = settled(&source);
            prop_assert!(source.is_char_boundary(before));
            prop_assert!(settled(&(source.clone() + &more)) >= before);
        }
    }
}
