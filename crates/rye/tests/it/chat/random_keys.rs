//! Random keys.

use crate::chat::window::{RESUME_HINT, Window};
use crate::chat::{MODEL, env, session};
use crate::support::json;

/// The seed is printed. Also checks that incremental paints and a redraw show the same.
#[test]
fn random_keys_neither_crash_the_chat_nor_lose_prompts() {
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
    let env = env("{ steps: [], after_last: { text: noted } }");
    let mut window = Window::open(&env, MODEL, (60, 20));
    window.wait_ready();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % most as u64).unwrap()
    };
    for round in 0..12 {
        for _ in 0..40 {
            window.try_press(KEYS[next(KEYS.len())]);
        }
        if next(3) == 0 {
            let size = [(60, 20), (30, 10), (100, 30)][next(3)];
            window.resize(size.0, size.1);
        }
        let mark = format!("mark{round}");
        if let Err(screen) = send_prompt(&window, &mark) {
            // The keys happened to quit the chat: resume the session.
            assert!(screen.contains(RESUME_HINT), "{screen}");
            window.exit();
            window = Window::open(&env, &["--session", &session(&env)], (60, 20));
            window.wait_ready();
            send_prompt(&window, &mark).unwrap();
        }
    }
    window.press("last");
    let last = |screen: &str| screen.contains("› last\nready");
    let incremental = window.wait_until("the draft", last);
    window.press("\x0c");
    let redrawn = window.wait_until("the draft again", last);
    let bottom = |screen: &str| screen[screen.rfind("› last").unwrap()..].to_owned();
    assert_eq!(bottom(&incremental), bottom(&redrawn));
    let id = session(&env);
    let shown = json(&env.run(&["session", "show", &id, "--json"])).to_string();
    for round in 0..12 {
        assert!(
            shown.contains(&format!("mark{round}")),
            "mark{round} is lost"
        );
    }
}

/// Sends a prompt and waits until it is answered. The error is the last screen of a chat that
/// ended.
fn send_prompt(window: &Window<'_>, mark: &str) -> Result<(), String> {
    // Ctrl-C leaves any mode and clears the line. Esc would combine with the next key.
    window.try_press("\x03x\x03");
    window.try_press(mark);
    window.wait_until_or_exit(mark, |screen| screen.contains(mark))?;
    window.try_press("\r");
    // Wait until the prompt was answered: stopping the agent now would return queued prompts.
    // The hint that this has happened disappears with the next key.
    let answered =
        |screen: &str| screen.contains("\nready ·") && !screen.contains(&format!("{mark}\nready"));
    window.wait_until_or_exit("the answer", |screen| {
        answered(screen) || screen.contains("saved: press")
    })?;
    window.try_press("\x1b[C");
    window.wait_until_or_exit("the answer", answered)?;
    Ok(())
}
