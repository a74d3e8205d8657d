//! What is said and done, as it looks.

use crate::window::Window;
use crate::{LOCAL, MODEL, PAGE, WIDE, same, settle, still, with_deploy, world};

const CALLS: &str = "steps:\n  - tool_calls:\n      - { name: write, args: { path: a.txt, content: \"one\\ntwo\\n\" } }\n      \
                  - { name: edit, args: { path: a.txt, old: two, new: three } }\n      \
                  - { name: bash, args: { command: 'cat a.txt; seq 5' } }\n  - text: done\n";

#[test]
fn an_answer_is_a_page_on_wide_and_narrow_terminals() {
    for (name, size) in [("page_wide", (80, 40)), ("page_narrow", (36, 50))] {
        let world = world(PAGE);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("say hello\r");
        window.shows("2. two");
        same!(name, window.ready());
    }
}

#[test]
fn code_and_differences_are_in_colour() {
    let world = world(PAGE);
    let window = Window::open(&world, MODEL, (80, 40));
    window.ready();
    window.press("say hello\r");
    window.shows("2. two");
    window.ready();
    let line = window.painted("def f(x):");
    assert!(line.contains("\x1b[35mdef"), "{line:?}");
    let line = window.painted("one more");
    assert!(line.contains("\x1b[2m# one more"), "{line:?}");

    let world = self::world(CALLS);
    let window = Window::open(&world, MODEL, (80, 40));
    window.ready();
    window.press("go\r");
    window.shows("done");
    for (line, colour) in [("-two", "31"), ("+three", "32")] {
        let painted = window.painted(line);
        assert!(
            painted.contains(&format!("\x1b[{colour}m{line}")),
            "{painted:?}"
        );
    }
}

#[test]
fn a_call_is_one_line_and_unfolds_on_demand() {
    for (name, size) in [("calls_wide", (80, 30)), ("calls_narrow", (36, 34))] {
        let world = world(CALLS);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("go\r");
        window.shows("done");
        let folded = window.ready();
        window.press("\x0f");
        let unfolded = window.shows("│ 5");
        same!(name, format!("{folded}\n=== Ctrl-O\n{unfolded}"));
    }
}

/// A tool that prints, and goes on once it is let.
#[test]
fn what_a_tool_prints_is_counted_and_shown_live_on_demand() {
    for (name, size) in [("live_wide", (80, 24)), ("live_narrow", (36, 24))] {
        let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'seq 15; until test -e go; do sleep 0.05; \
                      done; echo last' } }]\n  - text: done\n";
        let world = world(script);
        let window = Window::open(&world, &[MODEL, LOCAL].concat(), size);
        window.ready();
        window.press("count\r");
        window.shows("m more");
        settle();
        window.press("y");
        let folded = still(&window.shows("15 lines"));
        window.press("\x0f");
        let unfolded = still(&window.shows("│ 15"));
        world.write("project/go", "");
        window.shows("done");
        let all = format!(
            "{folded}\n=== Ctrl-O\n{unfolded}\n=== and then\n{}",
            window.ready()
        );
        same!(name, all);
    }
}

#[test]
fn another_size_is_painted_anew_and_nothing_is_left_over() {
    let world = world(PAGE);
    let window = Window::open(&world, MODEL, (80, 30));
    window.ready();
    window.press("say hello\r");
    window.shows("2. two");
    window.ready();
    window.press("half written");
    window.shows("› half written");
    window.resized(36, 30);
    let narrow = window.until("the narrow page", |screen| {
        screen.contains("› half written")
            && screen.lines().all(|line| line.chars().count() <= 36)
            && screen.contains("\n  58 tokens (0 %) · virtual")
    });
    same!("resized_narrow", narrow);
    window.resized(100, 30);
    let wide = window.until("the wide page", |screen| {
        screen.contains("› half written") && screen.contains("agent.yaml · 58 tokens")
    });
    same!("resized_wide", wide);
}

#[test]
fn what_scrolls_away_stays_with_the_terminal() {
    let script = "steps:\n  - text: |\n".to_owned()
        + &(1..=60).fold(String::new(), |all, it| {
            all + &format!("      line {it}\n\n")
        });
    let world = world(&script);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("go\r");
    window.shows("line 60");
    window.ready();
    let all = window.scrolled();
    for number in 1..=60 {
        let line = format!("line {number}");
        let count = all.lines().filter(|it| it.trim() == line).count();
        assert_eq!(count, 1, "{line} is there {count} times:\n{all}");
    }
}

#[test]
fn without_colours_it_says_the_same_and_sends_none() {
    for (name, size) in [("no_color_wide", (80, 40)), ("no_color_narrow", (36, 50))] {
        let world = with_deploy();
        let window = Window::with(&world, MODEL, size, &[("NO_COLOR", "1")]);
        window.ready();
        window.press("ship it\r");
        let asked = window.shows("m more");
        settle();
        window.press("y");
        window.shows("It said: once");
        let done = window.ready();
        world.write("project/page.yaml", PAGE);
        window.press("/thread page\r");
        window.until("an empty thread", |screen| !screen.contains("ship it"));
        window.press("/model scripted:page.yaml\r");
        window.shows("prompt on");
        window.press("say hello\r");
        window.shows("2. two");
        let page = window.ready();
        same!(name, format!("{asked}\n=== y\n{done}\n=== a page\n{page}"));
        let bytes = window.bytes();
        let text = String::from_utf8_lossy(&bytes);
        let coloured = text.split("\x1b[").skip(1).find(|rest| {
            let end = rest.find(|it: char| it.is_ascii_alphabetic());
            end.is_some_and(|end| rest.as_bytes()[end] == b'm')
        });
        assert_eq!(coloured, None);
    }
}

#[test]
fn hostile_text_cannot_steer_the_terminal() {
    let script = "steps:\n  - text: \"before \\e]0;owned\\a\\e[2J\\e[31mafter\"\n";
    let world = world(script);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("go\r");
    let screen = window.shows("before after");
    assert!(screen.contains("› go"), "{screen}");
    let bytes = window.bytes();
    assert!(!bytes.windows(5).any(|it| it == b"owned"));
}
