//! Gates on the screen.

use crate::chat::window::{LAST_ANSWER, Window};
use crate::chat::{
    LOCAL, MODEL, SIZES, SMALL, assert_screen, env, gate, run_count, session, wait_gate_grace,
    with_deploy,
};

#[test]
fn gate_shows_what_will_run_and_who_signed_it() {
    for (name, size) in [("gate_wide", (80, 30)), ("gate_narrow", (36, 40))] {
        let env = with_deploy();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        let gate_screen = window.wait_gate();
        assert_screen!(name, gate_screen);
        wait_gate_grace();
        window.press("y");
        window.wait_for("approved by ada");
        window.wait_for("It said: once");
        window.wait_ready();
        assert_eq!(run_count(&env), 1);
    }
}

#[test]
fn builtin_tools_ask_with_risk_and_diff_and_a_session_approval_covers_the_same_command() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - tool_calls: [{ name: write, args: { path: ../out.txt, content: \"one\\ntwo\\n\" } }]\n  \
                  - text: done\n";
    for (name, size) in [
        ("builtin_tools_wide", (80, 30)),
        ("builtin_tools_narrow", (36, 40)),
    ] {
        let env = env(script);
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_ready();
        window.press("go\r");
        let command = window.wait_gate();
        wait_gate_grace();
        window.press("a");
        // The second command is the same, so it needs no gate.
        let file = window.wait_until("the file", |screen| {
            screen.contains("+two") && screen.contains(LAST_ANSWER)
        });
        assert_eq!(run_count(&env), 2);
        wait_gate_grace();
        window.press("n\r");
        window.wait_for("done");
        let all = format!("{command}\n=== a\n{file}\n=== n\n{}", window.wait_ready());
        assert_screen!(name, all);
        assert!(!env.path("out.txt").exists());
    }
}

#[test]
fn gate_can_be_denied_after_viewing_details_and_cancelling_an_edit() {
    for (name, size) in [("details_wide", (80, 80)), ("details_narrow", (40, 100))] {
        let env = with_deploy();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        window.wait_gate();
        wait_gate_grace();
        window.press("?");
        assert_screen!(name, window.wait_for("\"signed_by\""));
        window.press("e");
        window.wait_for("approve with these arguments");
        window.press("\x1b");
        window.wait_until("the gate again", |screen| {
            !screen.contains("approve with these arguments")
        });
        window.press("n");
        window.wait_for("Enter: deny");
        window.press("\x1b");
        window.wait_gate();
        window.press("n\r");
        window.wait_for("denied by ada");
        window.wait_ready();
        assert_eq!(run_count(&env), 0);
    }
}

#[test]
fn edited_arguments_are_what_runs() {
    for (name, size) in [
        ("edit_arguments_wide", (80, 40)),
        ("edit_arguments_narrow", (40, 40)),
    ] {
        let env = with_deploy();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        window.wait_gate();
        wait_gate_grace();
        window.press("e");
        assert_screen!(name, window.wait_for("approve with these arguments"));
        // Delete the three lines of the JSON document.
        window.press("\x15\x7f\x15\x7f\x15{\"to\": \"test\"}\r");
        window.wait_for("approved with edited arguments");
        window.wait_for("{\"to\":\"test\"}");
        window.wait_ready();
        assert_eq!(run_count(&env), 1);
        window.press("/verify\r");
        window.wait_for("verified");
    }
}

#[test]
fn changes_of_a_turn_are_reviewed_and_single_files_chosen() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo one > a.txt; echo two > b.txt' } }]\n  \
                  - text: first\n  \
                  - tool_calls: [{ name: bash, args: { command: 'cat *.txt > c.txt' } }]\n  \
                  - text: second\n";
    let env = env(script);
    let window = Window::open(&env, &[MODEL, &["--review"]].concat(), (80, 40));
    window.wait_ready();
    window.press("go\r");
    let gate = window.wait_gate();
    for shown in [
        "2 added",
        "A a.txt",
        "A b.txt",
        "+one",
        "+two",
        "f choose files",
    ] {
        assert!(gate.contains(shown), "{shown}: {gate}");
    }
    assert!(!env.path("project/a.txt").exists());
    wait_gate_grace();
    window.press("f");
    window.wait_for("discard the others");
    // Delete the six lines of the JSON document.
    window.press(&"\x15\x7f".repeat(5));
    window.press("\x15{\"only\": [\"a.txt\"]}\r");
    window.wait_for("Applied to the workspace: a.txt");
    window.wait_ready();
    assert_eq!(env.read("project/a.txt"), "one\n");
    assert!(!env.path("project/b.txt").exists());

    window.press("/review\r");
    window.wait_until("an empty review", |screen| {
        screen.contains("Review the changes") && screen.contains("ready ·")
    });
    window.press("more\r");
    window.wait_gate();
    wait_gate_grace();
    window.press("y");
    window.wait_for("Applied to the workspace: c.txt");
    window.wait_ready();
    assert_eq!(env.read("project/c.txt"), "one\n");
}

#[test]
fn review_mode_is_turned_on_and_off() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo one > a.txt' } }]\n  \
                  - text: first\n  \
                  - tool_calls: [{ name: bash, args: { command: 'echo two > b.txt' } }]\n  \
                  - text: second\n";
    for (_, size) in SIZES {
        let env = env(script);
        assert!(env.run(&["init"]).status.success());
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("/review\r");
        window.wait_for_words("review mode is on: you approve the changes");
        window.press("/review on\r");
        window.wait_for_words("nothing to change");
        window.press("go\r");
        let is_readable = |screen: &str| screen.contains("y yes");
        if size == SMALL {
            // The gate does not fit: it is answered in a larger window.
            window.wait_for_words("terminal too small");
            window.resize(80, 24);
        }
        window.wait_until("the review", is_readable);
        assert!(!env.path("project/a.txt").exists());
        window.press("/review off\r");
        window.wait_for_words("the review mode cannot change");
        wait_gate_grace();
        window.press("y");
        window.wait_for_words("Applied to the workspace: a.txt");
        window.resize(size.0, size.1);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("/review off\r");
        window.wait_for_words("review mode is off");
        window.press("more\r");
        window.wait_for_text("second");
        window.wait_until("ready", |screen| screen.contains("ready"));
        assert_eq!(env.read("project/b.txt"), "two\n");
        window.press("\x04");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        let verified = env.run(&["session", "verify", &session(&env)]);
        assert!(verified.status.success(), "{verified:?}");
    }
}

#[test]
fn text_typed_before_a_gate_appeared_is_a_draft() {
    let env = with_deploy();
    let window = Window::open(&env, MODEL, (80, 30));
    window.wait_ready();
    // Typed ahead, before the gate is on the screen.
    window.press("ship it\ryes please");
    window.wait_gate();
    window.wait_for("› yes please");
    assert_eq!(run_count(&env), 0);
    window.press("\t");
    window.wait_for("saved: press");
    wait_gate_grace();
    window.press("y");
    window.wait_for("It said: once");
    window.press("\x1b[A");
    window.wait_for("› yes please");
}

#[test]
fn gate_answered_elsewhere_closes_and_keeps_the_draft() {
    for (name, size) in [
        ("answered_elsewhere_wide", (80, 30)),
        ("answered_elsewhere_narrow", (36, 40)),
    ] {
        let env = with_deploy();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        window.wait_gate();
        window.press("half written");
        let gate_screen = window.wait_for("› half written");
        let approved = env.run(&["gate", "approve", &gate(&env)]);
        assert!(approved.status.success(), "{approved:?}");
        window.wait_for("It said: once");
        let gone = window.wait_ready();
        assert!(gone.contains("› half written"), "{gone}");
        assert_screen!(name, format!("{gate_screen}\n=== rye gate approve\n{gone}"));
        assert_eq!(run_count(&env), 1);
    }
}

#[test]
fn gate_that_does_not_fit_takes_no_answer() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - text: done\n";
    for size in [(80, 3), (20, 4), (80, 5), (30, 8)] {
        let env = env(script);
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("go\r");
        window.wait_for("terminal too small");
        wait_gate_grace();
        window.press("y");
        window.wait_for("› y");
        assert_eq!(run_count(&env), 0, "{size:?}");
        window.resize_and_wait(80, 24);
        window.wait_for("approve?  run: echo once");
        window.press("\t");
        window.wait_for("saved: press");
        wait_gate_grace();
        // It was readable once, but is not any more.
        window.resize_and_wait(size.0, size.1);
        window.wait_for("terminal too small");
        window.press("y");
        window.wait_for("› y");
        window.resize_and_wait(80, 10);
        let screen = window.wait_gate();
        assert!(screen.contains("approve?  run: echo once"), "{screen}");
        window.press("\t");
        window.wait_for("saved: press");
        wait_gate_grace();
        window.press("y");
        window.wait_for("done");
        assert_eq!(run_count(&env), 1, "{size:?}");
    }
}

#[test]
fn reason_of_a_denial_reaches_the_agent() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - text: 'I read: ${last_tool_result}'\n";
    for size in [(80, 24), (200, 60)] {
        let env = env(script);
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_ready();
        window.press("go\r");
        window.wait_gate();
        wait_gate_grace();
        window.press("n");
        window.wait_for("type a reason for the agent");
        window.press("write to notes.txt\r");
        window.wait_for("I read: denied by ada: write to notes.txt");
        assert_eq!(run_count(&env), 0);
    }
    // The same from another terminal.
    let env = env(script);
    let window = Window::open(&env, &[MODEL, LOCAL].concat(), (80, 24));
    window.wait_ready();
    window.press("go\r");
    window.wait_gate();
    let denied = env.run(&["gate", "deny", &gate(&env), "--reason", "not now"]);
    assert!(denied.status.success(), "{denied:?}");
    window.wait_for("I read: denied by ada: not now");
}

#[test]
fn approval_by_prefix_covers_commands_that_start_the_same() {
    let call = |command: &str| {
        format!("  - tool_calls: [{{ name: bash, args: {{ command: '{command}' }} }}]\n")
    };
    let script = [
        "steps:\n",
        &call("touch keep one"),
        &call("touch keep two"),
        &call("touch keep two; touch three"),
        "  - text: done\n",
    ]
    .concat();
    let env = env(&script);
    let window = Window::open(&env, &[MODEL, LOCAL].concat(), (80, 24));
    window.wait_ready();
    window.press("go\r");
    let first = window.wait_gate();
    assert!(first.contains("c yes, every `touch keep …`"), "{first}");
    wait_gate_grace();
    window.press("c");
    // The second command needs no gate; the third is more than one command.
    let third = window.wait_until("the third command", |screen| {
        screen.contains("approve?  run: touch keep two; touch three")
            && screen.contains(LAST_ANSWER)
    });
    assert!(!third.contains("c yes"), "{third}");
    assert!(env.path("project/two").exists());
    wait_gate_grace();
    window.press("n\r");
    window.wait_for("done");
    assert!(!env.path("project/three").exists());
}

#[test]
fn changes_of_a_tool_since_its_last_approval_are_shown() {
    let env = with_deploy();
    let call = "  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:deploy', params: { to: \
                prod }, summary: ship it } }]\n  - text: shipped\n";
    let script = format!("steps:\n{}", call.repeat(3));
    env.write("project/agent.yaml", &script);
    let window = Window::open(&env, MODEL, (80, 40));
    window.wait_ready();
    window.press("one\r");
    let first = window.wait_gate();
    assert!(!first.contains("d what changed"), "{first}");
    wait_gate_grace();
    window.press("a");
    window.wait_for("shipped");
    // In the same session.
    change_deploy(&env, "twice");
    window.press("two\r");
    let gate_screen = window.wait_for("d what changed");
    assert!(
        gate_screen.contains("- tool:deploy changed from")
            || gate_screen.contains("- deploy changed from"),
        "{gate_screen}"
    );
    wait_gate_grace();
    window.press("d");
    window.wait_for("-  command: 'echo once");
    window.wait_for("+  command: 'echo twice");
    let shown = env.run(&["gate", "show", &gate(&env)]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("+  command: 'echo twice"), "{shown}");
    window.wait_gate();
    wait_gate_grace();
    window.press("p");
    window.wait_until("the second call", |screen| {
        screen.matches("● call_tool").count() == 2
    });
    window.wait_ready();
    window.press("/quit\r");
    window.exit();
    // In another session, after an approval for the project.
    change_deploy(&env, "thrice");
    let window = Window::open(&env, MODEL, (80, 40));
    window.wait_ready();
    window.press("three\r");
    window.wait_for("d what changed");
    wait_gate_grace();
    window.press("d");
    window.wait_for("-  command: 'echo twice");
    window.wait_for("+  command: 'echo thrice");
}

/// Changes what the `deploy` tool prints and signs it.
fn change_deploy(env: &crate::support::TestEnv, word: &str) {
    let path = "project/.ai/tools/deploy.yaml";
    let text = env.read(path);
    let (signature, text) = text.split_once('\n').unwrap();
    assert!(signature.contains("rye:signed:"), "{signature}");
    let start = text.find("'echo ").unwrap() + "'echo ".len();
    let end = start + text[start..].find(' ').unwrap();
    env.write(path, &format!("{}{word}{}", &text[..start], &text[end..]));
    let signed = env.run(&["sign", "deploy"]);
    assert!(signed.status.success(), "{signed:?}");
}
