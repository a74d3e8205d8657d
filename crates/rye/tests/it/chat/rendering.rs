//! How answers, tool calls and gates look.

use crate::chat::window::Window;
use crate::chat::{
    LOCAL, MODEL, PAGE, SIZES, WIDE, assert_screen, env, wait_gate_grace, with_deploy,
    without_spinner,
};

const CALLS: &str = "steps:\n  - tool_calls:\n      - { name: write, args: { path: a.txt, content: \"one\\ntwo\\n\" } }\n      \
                  - { name: edit, args: { path: a.txt, old: two, new: three } }\n      \
                  - { name: bash, args: { command: 'cat a.txt; seq 5' } }\n  - text: done\n";

#[test]
fn answer_is_rendered_on_wide_and_narrow_terminals() {
    for (name, size) in [("page_wide", (80, 40)), ("page_narrow", (36, 50))] {
        let env = env(PAGE);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("say hello\r");
        window.wait_for("2. two");
        assert_screen!(name, window.wait_ready());
    }
}

#[test]
fn code_and_diffs_are_coloured() {
    let env = env(PAGE);
    let window = Window::open(&env, MODEL, (80, 40));
    window.wait_ready();
    window.press("say hello\r");
    window.wait_for("2. two");
    window.wait_ready();
    let line = window.formatted_line("def f(x):");
    assert!(line.contains("\x1b[35mdef"), "{line:?}");
    let line = window.formatted_line("one more");
    assert!(line.contains("\x1b[2m# one more"), "{line:?}");

    let env = self::env(CALLS);
    let window = Window::open(&env, MODEL, (80, 40));
    window.wait_ready();
    window.press("go\r");
    window.wait_for("done");
    for (line, colour) in [("-two", "31"), ("+three", "32")] {
        let painted = window.formatted_line(line);
        assert!(
            painted.contains(&format!("\x1b[{colour};22m{line}")),
            "{painted:?}"
        );
    }
}

#[test]
fn tool_call_is_one_line_and_expands_on_demand() {
    for (name, size) in [("calls_wide", (80, 30)), ("calls_narrow", (36, 34))] {
        let env = env(CALLS);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("go\r");
        window.wait_for("done");
        let collapsed = window.wait_ready();
        window.press("\x0f");
        let expanded = window.wait_for("│ one");
        assert_screen!(name, format!("{collapsed}\n=== Ctrl-O\n{expanded}"));
    }
}

/// The tool prints lines and waits for a file.
#[test]
fn live_tool_output_is_counted_and_expands_on_demand() {
    for (name, size) in [("live_wide", (80, 24)), ("live_narrow", (36, 24))] {
        let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'seq 15; until test -e go; do sleep 0.05; \
                      done; echo last' } }]\n  - text: done\n";
        let env = env(script);
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_ready();
        window.press("count\r");
        window.wait_gate();
        wait_gate_grace();
        window.press("y");
        let collapsed = without_spinner(&window.wait_for("15 lines"));
        window.press("\x0f");
        let expanded = without_spinner(&window.wait_for("│ 15"));
        env.write("project/go", "");
        window.wait_for("done");
        window.wait_ready();
        // With the scrollback: how far the screen has scrolled depends on the paints in between.
        let all = format!(
            "{collapsed}\n=== Ctrl-O\n{expanded}\n=== and then\n{}",
            window.full_text()
        );
        assert_screen!(name, all);
    }
}

#[test]
fn resize_redraws_the_screen() {
    let env = env(PAGE);
    let window = Window::open(&env, MODEL, (80, 30));
    window.wait_ready();
    window.press("say hello\r");
    window.wait_for("2. two");
    window.wait_ready();
    window.press("half written");
    window.wait_for("› half written");
    window.resize_and_wait(36, 30);
    let narrow = window.wait_until("the narrow page", |screen| {
        screen.contains("› half written")
            && screen.lines().all(|line| line.chars().count() <= 36)
            && screen.contains("\n  58 tokens (0 %) · confined")
    });
    assert_screen!("resized_narrow", narrow);
    window.resize_and_wait(100, 30);
    let wide = window.wait_until("the wide page", |screen| {
        screen.contains("› half written") && screen.contains("agent.yaml · 58 tokens")
    });
    assert_screen!("resized_wide", wide);
}

#[test]
fn finished_lines_are_kept_once_in_the_scrollback() {
    let script = "steps:\n  - text: |\n".to_owned()
        + &(1..=60).fold(String::new(), |all, it| {
            all + &format!("      line {it}\n\n")
        });
    let env = env(&script);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    window.wait_for("line 60");
    window.wait_ready();
    let all = window.full_text();
    for number in 1..=60 {
        let line = format!("line {number}");
        let count = all.lines().filter(|it| it.trim() == line).count();
        assert_eq!(count, 1, "{line} appears {count} times:\n{all}");
    }
}

#[test]
fn no_color_sends_no_colour_sequences() {
    for (name, size) in [("no_color_wide", (80, 40)), ("no_color_narrow", (36, 50))] {
        let env = with_deploy();
        let window = Window::with(&env, MODEL, size, &[("NO_COLOR", "1")]);
        window.wait_ready();
        window.press("ship it\r");
        let gate_screen = window.wait_gate();
        wait_gate_grace();
        window.press("y");
        window.wait_for("It said: once");
        let done = window.wait_ready();
        env.write("project/page.yaml", PAGE);
        window.press("/thread page\r");
        window.wait_until("an empty thread", |screen| !screen.contains("ship it"));
        window.choose_model("scripted:page.yaml");
        window.press("say hello\r");
        window.wait_for("2. two");
        let page = window.wait_ready();
        assert_screen!(
            name,
            format!("{gate_screen}\n=== y\n{done}\n=== a page\n{page}")
        );
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
fn hostile_text_cannot_control_the_terminal() {
    let script = "steps:\n  - text: \"before \\e]0;owned\\a\\e[2J\\e[31mafter\"\n";
    let env = env(script);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    let screen = window.wait_for("before after");
    assert!(screen.contains("› go"), "{screen}");
    let bytes = window.bytes();
    assert!(!bytes.windows(5).any(|it| it == b"owned"));
}

#[test]
fn long_output_opens_in_the_pager() {
    // The middle is left out for the model; the pager shows it.
    let command = "seq 20000; echo end";
    let script = format!(
        "steps:\n  - tool_calls: [{{ name: bash, args: {{ command: '{command}' }} }}]\n  - text: done\n"
    );
    for (_, size) in SIZES {
        let env = env(&script);
        let pager = "cat > paged.txt; echo in the pager; head -n 1 < /dev/tty > answer.txt";
        let args = [MODEL, &["--color", "never"]].concat();
        let window = Window::with(&env, &args, size, &[("PAGER", pager)]);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("count\r");
        window.wait_until("the answer", |screen| {
            screen.contains("done") && screen.contains("ready")
        });
        window.press("\x0f");
        window.wait_for("in the pager");
        let paged = env.read("project/paged.txt");
        assert!(paged.contains("│ 10000\n") && paged.contains("│ end\n"));
        assert!(!paged.contains("lines above"));
        // The terminal is in line mode, and the chat returns.
        window.press("yes\r");
        window.wait_until("the chat", |screen| {
            screen.contains("ready") && !screen.contains("in the pager")
        });
        assert_eq!(env.read("project/answer.txt"), "yes\n");
        window.press("still here");
        window.wait_until("the draft", |screen| screen.contains("still here"));
    }
}

/// Wide letters, sequences of emoji that terminals draw in different widths, combining letters, and
/// right-to-left text.
#[test]
fn text_in_any_script_keeps_the_layout() {
    let words = [
        "漢字とテスト",
        "👩\u{200d}👩\u{200d}👧🇩🇪❤\u{fe0f}",
        "שלום עולם",
        "مرحبا بالعالم",
        "e\u{301}te\u{301}",
    ];
    let paragraph = |word: &str| format!("{} finis\n\n", [word; 30].join(" "));
    let paragraphs = words.map(paragraph).concat();
    let table = words.map(|word| format!("| {word} | x |\n")).concat();
    let page = format!("{paragraphs}| a | b |\n|---|---|\n{table}\nlast line\n");
    let script =
        serde_json::json!({ "steps": [{ "text": page }], "after_last": { "text": "noted" } });
    for (_, size) in SIZES {
        let env = env(&script.to_string());
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("go\r");
        window.wait_until("the answer", |screen| {
            screen.contains("last line") && screen.contains("ready")
        });
        // Nothing is lost, painted twice, or painted over.
        let all = window.full_text();
        for (letter, per_word) in [('漢', 1), ('🇩', 1), ('ע', 1), ('ع', 1), ('👩', 2)] {
            let count = all.matches(letter).count();
            assert_eq!(count, 31 * per_word, "{size:?} {letter}\n{all}");
        }
        assert_eq!(all.matches("finis").count(), words.len(), "{size:?}\n{all}");
        // The input.
        let typed = "漢字 שלום 👩";
        window.press(typed);
        window.press("x\x7f");
        window.wait_until("the draft", |screen| screen.contains(typed));
        window.press("\r");
        window.wait_until("an answer", |screen| {
            screen.contains("noted") && screen.contains("ready")
        });
        let exported = env.run(&["session", "export", &crate::chat::session(&env)]);
        let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
        assert!(exported.contains(typed), "{exported}");
    }
}
