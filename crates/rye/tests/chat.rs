//! `rye chat`, on a real terminal and with a scripted model.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "chat/window.rs"]
mod window;

mod support;

use support::{World, json};
use window::Window;

const WIDE: (u16, u16) = (80, 24);
const NARROW: (u16, u16) = (36, 16);

/// What differs from run to run.
macro_rules! same {
    ($name:expr, $screen:expr) => {
        insta::with_settings!({ filters => [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]+", "ID"),
            (r"\b[0-9a-f]{16}\b", "HASH"),
            (r"signed\s+by \S+", "signed by KEY"),
        ] }, { insta::assert_snapshot!($name, $screen) });
    };
}

fn world(script: &str) -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    world.write("project/agent.yaml", script);
    world
}

const MODEL: &[&str] = &["--model", "scripted:agent.yaml"];

/// A world with a signed tool that needs an approval, and an agent that calls it.
fn with_deploy() -> World {
    let script = "steps:\n  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:deploy', \
                  params: { to: prod }, summary: ship it } }]\n  - text: 'It said: ${last_tool_result}'\n\
                  after_last: { text: noted }\n";
    let world = world(script);
    assert!(world.run(&["init"]).status.success());
    let tool = "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
                executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo once >> ran.txt; cat ran.txt'\n\
                config_schema:\n  type: object\n  properties: { to: { type: string } }\n";
    world.write("project/.ai/tools/deploy.yaml", tool);
    assert!(world.run(&["sign", "deploy"]).status.success());
    world
}

fn ran(world: &World) -> usize {
    let text = std::fs::read_to_string(world.path("project/ran.txt")).unwrap_or_default();
    text.lines().count()
}

const PAGE: &str = r"
steps:
  - text: |
      # Hello

      Some *words*, a [link](https://example.org) and `code`:

      ```python
      def f(x):
          return x + 1  # one more
      ```

      | name | what |
      |------|------|
      | a    | the first of them |
      | b    | the second |

      1. one
      2. two
    chunk_chars: 7
    chunk_ms: 1
";

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
fn who_has_no_key_is_told_what_to_set_and_can_look_around() {
    for (name, size) in [("no_key_wide", WIDE), ("no_key_narrow", NARROW)] {
        let world = world(PAGE);
        let window = Window::open(&world, &[], size);
        same!(name, window.ready());
        window.press("/model scripted:demo\r");
        window.shows("answers from the next");
        window.press("hi\r");
        window.shows("It said:");
        window.ready();
    }
}

#[test]
fn a_call_is_one_line_and_unfolds_on_demand() {
    let script = "steps:\n  - tool_calls:\n      - { name: write, args: { path: a.txt, content: \"one\\ntwo\\n\" } }\n      \
                  - { name: edit, args: { path: a.txt, old: two, new: three } }\n      \
                  - { name: bash, args: { command: 'cat a.txt; seq 5' } }\n  - text: done\n";
    for (name, size) in [("calls_wide", (80, 30)), ("calls_narrow", (36, 34))] {
        let world = world(script);
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

#[test]
fn a_gate_shows_what_will_run_and_who_signed_it() {
    for (name, size) in [("gate_wide", (80, 30)), ("gate_narrow", (36, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        let asked = window.shows("m more");
        same!(name, asked);
        settle();
        window.press("y");
        window.shows("approved by ada");
        window.shows("It said: once");
        window.ready();
        assert_eq!(ran(&world), 1);
    }
}

/// What is typed right after a gate has come is not meant for it.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(450));
}

#[test]
fn at_a_gate_one_can_say_no_see_more_and_want_other_arguments() {
    let world = with_deploy();
    let window = Window::open(&world, MODEL, (80, 40));
    window.ready();
    window.press("ship it\r");
    window.shows("m more");
    settle();
    window.press("m");
    window.shows("\"signed_by\"");
    window.press("e");
    window.shows("yes, with these arguments");
    window.press("\x1b");
    window.until("the gate again", |screen| {
        !screen.contains("yes, with these arguments")
    });
    window.press("n");
    window.shows("denied by ada");
    window.ready();
    assert_eq!(ran(&world), 0);
}

#[test]
fn arguments_are_edited_and_what_was_written_is_what_runs() {
    for (name, size) in [("edit_wide", (80, 40)), ("edit_narrow", (40, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        settle();
        window.press("e");
        same!(name, window.shows("yes, with these arguments"));
        // It is a document of three lines.
        window.press("\x15\x7f\x15\x7f\x15{\"to\": \"test\"}\r");
        window.shows("approved with other arguments");
        window.shows("{\"to\":\"test\"}");
        window.ready();
        assert_eq!(ran(&world), 1);
        window.press("/verify\r");
        window.shows("verified");
    }
}

#[test]
fn what_is_typed_into_a_gate_that_just_came_is_writing_not_an_answer() {
    let world = with_deploy();
    let window = Window::open(&world, MODEL, (80, 30));
    window.ready();
    // All of it comes at once, as from somebody who types ahead.
    window.press("ship it\ryes please");
    window.shows("m more");
    window.shows("› yes please");
    assert_eq!(ran(&world), 0);
    window.press("\t");
    window.shows("one key up");
    settle();
    window.press("y");
    window.shows("It said: once");
    window.press("\x1b[A");
    window.shows("› yes please");
}

#[test]
fn after_a_kill_all_is_there_and_the_gate_waits() {
    for (name, size) in [("resumed_wide", (80, 30)), ("resumed_narrow", (40, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        window.kill();
        let sessions = json(&world.run(&["session", "list", "--json"]));
        let id = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
        let args = ["--session", &id, "--model", "scripted:agent.yaml"];
        let window = Window::open(&world, &args, size);
        window.shows("› ship it");
        window.shows("m more");
        same!(name, window.shows("waits for you"));
        assert_eq!(ran(&world), 0);
        settle();
        window.press("y");
        window.shows("It said: once");
        window.ready();
        assert_eq!(ran(&world), 1);
        window.press("/verify\r");
        window.shows("verified");
    }
}

#[test]
fn a_gate_that_is_answered_elsewhere_goes_away() {
    let world = with_deploy();
    let window = Window::open(&world, MODEL, (80, 30));
    window.ready();
    window.press("ship it\r");
    window.shows("m more");
    let gates = json(&world.run(&["gate", "list", "--json"]));
    let id = gates["gates"][0]["id"].as_str().unwrap();
    assert!(world.run(&["gate", "approve", id]).status.success());
    window.shows("approved by ada (cli)");
    window.shows("It said: once");
    same!("elsewhere", window.ready());
    assert_eq!(ran(&world), 1);
}

const SLOW: &str = "steps:\n  - { text: slow, delay_ms: 600000 }\n";

#[test]
fn what_is_sent_while_the_agent_works_waits_and_can_be_changed() {
    for (name, size) in [("queue_wide", WIDE), ("queue_narrow", NARROW)] {
        let world = world(SLOW);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("first\r");
        window.shows("› first");
        window.press("second\r");
        window.press("third\r");
        let queued = window.shows("2. third");
        let spinner = |text: &str| text.replace(['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠹'], "*");
        same!(name, spinner(&queued));
        window.press("/queue edit 1\r");
        window.shows("› second");
        window.press(" changed\r");
        window.shows("2. second changed");
        window.press("/queue rm 1\r");
        window.shows("taken out: third");
        window.shows("1. second changed");
        window.press("now this");
        window.press("\x13");
        // It is asked at once, and what waited still waits.
        window.until("the steered prompt", |screen| {
            let ended = screen.find("ended");
            let asked = screen.find("› now this");
            let waits = screen.find("1. second changed");
            ended.is_some() && ended < asked && asked < waits
        });
    }
}

#[test]
fn escape_ends_the_work_and_keeps_what_is_written() {
    let world = world(SLOW);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("first\r");
    window.shows("(Esc ends it)");
    window.press("half a thou");
    window.shows("› half a thou");
    window.press("\x1b");
    window.shows("ended");
    let screen = window.ready();
    assert!(screen.contains("› half a thou"), "{screen}");
}

#[test]
fn threads_are_told_apart() {
    for (name, size) in [("threads_wide", WIDE), ("threads_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("in the first\r");
        window.shows("noted");
        window.press("/thread side\r");
        window.until("an empty thread", |screen| !screen.contains("in the first"));
        window.press("in the second\r");
        window.shows("noted");
        window.shows("○side");
        same!(name, window.ready());
        window.press("\x14");
        window.shows("› in the first");
        window.press("/threads\r");
        window.shows("/thread KEY goes to one");
    }
}

/// One thread waits for a person while another goes on.
#[test]
fn a_thread_that_waits_is_marked_and_does_not_hold_up_the_others() {
    for (name, size) in [("waits_wide", (80, 30)), ("waits_narrow", (40, 40))] {
        let world = with_deploy();
        world.write(
            "project/side.yaml",
            "{ steps: [], after_last: { text: noted } }",
        );
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        window.press("/thread side\r");
        window.until("an empty thread", |screen| !screen.contains("› ship it"));
        window.press("/model scripted:side.yaml\r");
        window.shows("answers from the next");
        window.press("meanwhile\r");
        window.shows("noted");
        same!(
            name,
            window.until("both", |screen| {
                screen.contains("◆default") && screen.contains("○side")
            })
        );
        assert_eq!(ran(&world), 0);
    }
}

#[test]
fn an_image_goes_with_what_is_said_by_its_path_or_pasted() {
    for (name, size) in [("image_wide", WIDE), ("image_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        world.write("project/a.png", "not really");
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("what is @a.png\r");
        window.shows("noted");
        same!(name, window.ready());
        // The path of a file that is dropped or pasted.
        let path = world.path("project/a.png");
        window.press(&format!("\x1b[200~{}\x1b[201~", path.display()));
        window.until("an image", |screen| {
            screen
                .replace(['\n', ' '], "")
                .contains(&format!("@{}", path.display()))
        });
        window.press("\r");
        window.until("both are there", |screen| {
            screen.matches("noted").count() == 2
        });
        window.press("and @gone.png\r");
        window.shows("not sent: cannot read gone.png");
        window.shows("› and @gone.png");
    }
}

#[test]
fn lines_are_edited_completed_and_remembered() {
    let mut world = world("{ steps: [], after_last: { text: noted } }");
    world.write("project/notes/plan.md", "x");
    world.write("editor.sh", "#!/bin/sh\necho 'written outside' > \"$1\"\n");
    let editor = format!("sh {}", world.path("editor.sh").display());
    world.set("EDITOR", &editor);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("one\x1b\rtwo\\\rthree");
    window.until("three lines", |it| it.contains("› one\n  two\n  three"));
    window.press("\x15\x7f\x15\x7f\x15");
    window.press("/he");
    same!("commands_wide", window.shows("▸ help"));
    window.resize(36, 16);
    window.press("\x15/");
    same!("commands_narrow", window.shows("▸ model"));
    window.resize(80, 24);
    window.press("\x15/he");
    window.shows("▸ help");
    window.press("\t\x15");
    window.press("look at @plan");
    window.shows("▸ notes/plan.md");
    window.press("\t");
    window.shows("› look at @notes/plan.md");
    window.press("\x15\x07");
    window.shows("› written outside");
    window.press("\r");
    window.shows("noted");
    window.press("\x04");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
    assert!(
        screen.contains("it goes on with: rye chat --session"),
        "{screen}"
    );

    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.until("the past", |_| true);
    window.press("\x1b[A");
    window.shows("› written outside");
    window.press("\x15\x12outs");
    window.shows("→ written outside");
    window.press("\r");
    window.shows("› written outside");
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
    window.resize(36, 30);
    let narrow = window.until("the narrow page", |screen| {
        screen.contains("› half written")
            && screen.lines().all(|line| line.chars().count() <= 36)
            && screen.matches("half written").count() == 1
    });
    assert!(narrow.contains("2. two"), "{narrow}");
    window.resize(100, 30);
    let wide = window.until("the wide page", |screen| {
        screen.contains("› half written") && screen.contains("and code:")
    });
    assert_eq!(wide.matches("› half written").count(), 1, "{wide}");
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
fn without_colours_there_is_none() {
    let world = world(PAGE);
    let window = Window::with(&world, MODEL, WIDE, &[("NO_COLOR", "1")]);
    window.ready();
    window.press("say hello\r");
    window.shows("2. two");
    window.ready();
    let bytes = window.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let coloured = text.split("\x1b[").skip(1).find(|rest| {
        let end = rest.find(|it: char| it.is_ascii_alphabetic());
        end.is_some_and(|end| rest.as_bytes()[end] == b'm')
    });
    assert_eq!(coloured, None);
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

#[test]
fn line_by_line_it_says_the_same() {
    let world = with_deploy();
    let input = b"ship it\n";
    let args = ["chat", "--plain", "--model", "scripted:agent.yaml"];
    let output = world.feed(&args, input);
    let said = String::from_utf8_lossy(&output.stdout);
    same!("plain_gate", said);
    assert_eq!(ran(&world), 0);
    let sessions = json(&world.run(&["session", "list", "--json"]));
    let id = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
    let args = [
        "chat",
        "--plain",
        "--session",
        &id,
        "--model",
        "scripted:agent.yaml",
    ];
    let output = world.feed(&args, b"y\n");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("It said: once"), "{said}");
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(ran(&world), 1);
}

#[test]
fn commands_answer() {
    let world = world("{ steps: [], after_last: { text: noted } }");
    let window = Window::open(&world, MODEL, (80, 45));
    window.ready();
    window.press("hello\r");
    window.shows("noted");
    for (typed, shown) in [
        ("/help", "this, and the keys"),
        ("/tools", "bash"),
        ("/cost", "calls of the model"),
        ("/gates", "nothing waits for a decision"),
        ("/queue", "nothing waits"),
        ("/model", "/model NAME chooses one"),
        ("/model nonsense", "there is no model nonsense"),
        ("/modelx", "there is /model"),
    ] {
        window.press(typed);
        window.press("\r");
        window.shows(shown);
        window.press("\x15");
    }
    window.press("/fork\r");
    window.shows("forked: rye chat --session");
    window.press("/export out.jsonl\r");
    window.shows("out.jsonl");
    window.press("/quit\r");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
}

/// Any keys, from a seed that is printed: it neither ends nor loses what is written, and
/// what is on the screen is what is painted on an empty one.
#[test]
fn whatever_is_pressed_it_stays_and_keeps_what_is_written() {
    const KEYS: [&str; 34] = [
        "a",
        "Z",
        " ",
        "ü",
        "漢",
        "/",
        "@",
        "\\",
        "y",
        "n",
        "m",
        "e",
        "1",
        "\r",
        "\t",
        "\x1b[Z",
        "\x1b[A",
        "\x1b[B",
        "\x1b[C",
        "\x1b[D",
        "\x7f",
        "\x01",
        "\x05",
        "\x0b",
        "\x15",
        "\x17",
        "\x19",
        "\x12",
        "\x0f",
        "\x0a",
        "\x1bb",
        "\x1b\r",
        "\x1b[200~pasted\ntext\x1b[201~",
        "\x13",
    ];
    let seed = std::env::var("RYE_CHAT_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("RYE_CHAT_SEED={seed}");
    let world = world("{ steps: [], after_last: { text: noted } }");
    let window = Window::open(&world, MODEL, (60, 20));
    window.ready();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % most as u64).unwrap()
    };
    for round in 0..12 {
        for _ in 0..40 {
            window.press(KEYS[next(KEYS.len())]);
        }
        if next(3) == 0 {
            let size = [(60, 20), (30, 10), (100, 30)][next(3)];
            window.resize(size.0, size.1);
        }
        // Out of whatever it was in, and a line of its own.
        window.press("\x1b");
        window.shows("·");
        window.press("\x05\x15\x7f\x15\x7f\x15\x7f\x15\x03");
        let mark = format!("mark{round}");
        window.press(&mark);
        window.until(&mark, |screen| screen.contains(&mark));
        window.press("\r");
        window.until("it is sent", |screen| {
            !screen.contains(&format!("› {mark}\nready"))
        });
    }
    window.press("last");
    let last = |screen: &str| screen.contains("› last\nready");
    let bit_by_bit = window.until("the last words", last);
    window.press("\x0c");
    let at_once = window.until("them again", last);
    let bottom = |screen: &str| screen[screen.rfind("› last").unwrap()..].to_owned();
    assert_eq!(bottom(&bit_by_bit), bottom(&at_once));
    // Nothing that was sent is lost.
    let sessions = json(&world.run(&["session", "list", "--json"]));
    let id = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
    let shown = json(&world.run(&["session", "show", &id, "--json"])).to_string();
    for round in 0..12 {
        assert!(
            shown.contains(&format!("mark{round}")),
            "mark{round} is lost"
        );
    }
}
