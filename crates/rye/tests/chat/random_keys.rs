//! Any keys.

use crate::support::json;
use crate::window::Window;
use crate::{MODEL, session, world};

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
    let mut window = Window::open(&world, MODEL, (60, 20));
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
            window.try_press(KEYS[next(KEYS.len())]);
        }
        if next(3) == 0 {
            let size = [(60, 20), (30, 10), (100, 30)][next(3)];
            window.resize(size.0, size.1);
        }
        let mark = format!("mark{round}");
        if let Err(screen) = ask(&window, &mark) {
            // Among the keys were those of `/quit`: it ends so, and goes on.
            assert!(screen.contains("it goes on with: rye chat"), "{screen}");
            window.exit();
            window = Window::open(&world, &["--session", &session(&world)], (60, 20));
            window.ready();
            ask(&window, &mark).unwrap();
        }
    }
    window.press("last");
    let last = |screen: &str| screen.contains("› last\nready");
    let bit_by_bit = window.until("the last words", last);
    window.press("\x0c");
    let at_once = window.until("them again", last);
    let bottom = |screen: &str| screen[screen.rfind("› last").unwrap()..].to_owned();
    assert_eq!(bottom(&bit_by_bit), bottom(&at_once));
    // Nothing that was sent is lost.
    let id = session(&world);
    let shown = json(&world.run(&["session", "show", &id, "--json"])).to_string();
    for round in 0..12 {
        assert!(
            shown.contains(&format!("mark{round}")),
            "mark{round} is lost"
        );
    }
}

/// Says something, and waits until it is answered; or until it has ended.
fn ask(window: &Window<'_>, mark: &str) -> Result<(), String> {
    // Out of whatever it was in, to a line of its own. Not by Esc, which with the next key
    // would be another one.
    window.try_press("\x03x\x03");
    window.try_press(mark);
    window.until_or_end(mark, |screen| screen.contains(mark))?;
    window.try_press("\r");
    // It is to be asked before anything else is done: who ends the work has what waits given
    // back. That this was done is told until the next key.
    let asked =
        |screen: &str| screen.contains("\nready ·") && !screen.contains(&format!("{mark}\nready"));
    window.until_or_end("it is asked", |screen| {
        asked(screen) || screen.contains("one key up")
    })?;
    window.try_press("\x1b[C");
    window.until_or_end("it is asked", asked)?;
    Ok(())
}
