//! The chat on a pseudo-terminal, with an emulator that reads the screen.
//!
//! The texts that tests wait for more than once are named here.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lillux::process::Handle;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::TestEnv;

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Lines that the emulator keeps in its scrollback.
const SCROLLBACK: usize = 5000;

/// The answer that every approval gate lists last.
pub(crate) const LAST_ANSWER: &str = "? more";
/// Shown while the agent works.
pub(crate) const BUSY: &str = "(Esc to stop)";
/// Printed when the chat ends, followed by the session.
pub(crate) const RESUME_HINT: &str = "resume with: rye chat --session";

/// Output so far.
struct Output {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    /// Whether a synchronised update has started and not ended.
    fn is_painting(&self) -> bool {
        let last = |mark: &[u8]| self.bytes.windows(mark.len()).rposition(|it| it == mark);
        last(b"\x1b[?2026h") > last(b"\x1b[?2026l")
    }
}

/// A chat on a terminal.
pub(crate) struct Window<'a> {
    /// Keeps the directories of the chat.
    _env: &'a TestEnv,
    master: File,
    child: Child,
    output: Arc<(Mutex<Output>, Condvar)>,
}

impl<'a> Window<'a> {
    pub(crate) fn open(env: &'a TestEnv, args: &[&str], (width, height): (u16, u16)) -> Self {
        Self::with(env, args, (width, height), &[])
    }

    pub(crate) fn with(
        env: &'a TestEnv,
        args: &[&str],
        size: (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let rye = env.command();
        let mut line = vec![rye.get_program(), OsStr::new("chat")];
        line.extend(args.iter().map(OsStr::new));
        Self::start(env, &line, size, variables)
    }

    /// Runs a shell script that finds the binary as `$RYE`.
    pub(crate) fn shell(env: &'a TestEnv, script: &str, size: (u16, u16)) -> Self {
        let rye = env.command();
        let path = rye.get_program().to_str().unwrap();
        let line = ["sh", "-c", script].map(OsStr::new);
        Self::start(env, &line, size, &[("RYE", path)])
    }

    fn start(
        env: &'a TestEnv,
        line: &[&OsStr],
        (width, height): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(width, height)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(OsStr::from_bytes(name.as_bytes()));
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let [input, stdout, error] = [(); 3].map(|()| slave.try_clone().unwrap());
        drop(slave);
        let rye = env.command();
        // A controlling terminal, so that the process receives SIGWINCH.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(line).env_clear();
        for (name, value) in rye.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied());
        if let Some(folder) = rye.get_current_dir() {
            command.current_dir(folder);
        }
        command.stdin(input).stdout(stdout).stderr(error);
        let child = command.process_group(0).spawn().unwrap();
        let master = File::from(master);
        let output = Output {
            parser: vt100::Parser::new(some(height), some(width), SCROLLBACK),
            bytes: Vec::new(),
            ended: false,
        };
        let output = Arc::new((Mutex::new(output), Condvar::new()));
        let (reader, all) = (master.try_clone().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || read(reader, &all));
        Self {
            _env: env,
            master,
            child,
            output,
        }
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        let (output, _) = &*self.output;
        let mut output = output.lock().unwrap();
        output
            .parser
            .screen_mut()
            .set_size(some(height), some(width));
        tcsetwinsize(&self.master, size(width, height)).unwrap();
    }

    /// Presses keys in a chat that may have ended.
    pub(crate) fn try_press(&self, keys: &str) {
        let _ = (&self.master).write_all(keys.as_bytes());
    }

    /// Resizes the terminal and waits for the redraw.
    #[track_caller]
    pub(crate) fn resize_and_wait(&self, width: u16, height: u16) {
        let (output, changed) = &*self.output;
        let before = output.lock().unwrap().bytes.len();
        self.resize(width, height);
        let mut output = output.lock().unwrap();
        let end = Instant::now() + TIMEOUT;
        // Only a redraw moves the cursor to the top left corner.
        let is_new = |bytes: &[u8]| bytes.windows(3).any(|it| it == b"\x1b[H");
        while !is_new(&output.bytes[before..]) || output.is_painting() {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !output.ended, "the chat does not redraw");
            output = changed.wait_timeout(output, left).unwrap().0;
        }
    }

    /// Waits until the screen satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        match self.wait_until_or_exit(what, wanted) {
            Ok(screen) => screen,
            Err(screen) => panic!("waited for {what} and the chat ended:\n{screen}"),
        }
    }

    /// The same; the error is the last screen of a chat that ended.
    #[track_caller]
    pub(crate) fn wait_until_or_exit(
        &self,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let (output, changed) = &*self.output;
        let mut output = output.lock().unwrap();
        let end = Instant::now() + TIMEOUT;
        loop {
            let screen = tidy(&output.parser.screen().contents());
            // Ignore a screen that is partially painted.
            if !output.is_painting() && wanted(&screen) {
                return Ok(screen);
            }
            if output.ended {
                return Err(screen);
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what} and saw:\n{screen}");
            output = changed.wait_timeout(output, left).unwrap().0;
        }
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// Waits until a gate with its answers is on the screen.
    #[track_caller]
    pub(crate) fn wait_gate(&self) -> String {
        self.wait_for(LAST_ANSWER)
    }

    /// Waits until `count` gates were printed line by line, and the prompt below the last.
    #[track_caller]
    pub(crate) fn wait_plain_gate(&self, count: usize) -> String {
        self.wait_until("a gate and the prompt", |screen| {
            screen.matches(LAST_ANSWER).count() == count
                && screen.ends_with(&format!("{LAST_ANSWER}\n>"))
        })
    }

    /// Waits for the prompt of a chat that has printed nothing else.
    #[track_caller]
    pub(crate) fn wait_plain_prompt(&self) -> String {
        self.wait_until("the prompt", |screen| screen == ">")
    }

    /// Chooses a model with `/model`.
    #[track_caller]
    pub(crate) fn choose_model(&self, name: &str) {
        self.press(&format!("/model {name}\r"));
        self.wait_for(&format!("using {name}"));
    }

    /// Waits until the agent is idle and no gate is pending.
    #[track_caller]
    pub(crate) fn wait_ready(&self) -> String {
        self.wait_until("ready", |screen| screen.contains("ready ·"))
    }

    /// The scrollback and the screen.
    pub(crate) fn full_text(&self) -> String {
        let (output, _) = &*self.output;
        let mut output = output.lock().unwrap();
        let screen = output.parser.screen_mut();
        screen.set_scrollback(usize::MAX);
        let most = screen.scrollback();
        let mut text = String::new();
        let (height, width) = screen.size();
        let (height, width) = (height.get(), width.get());
        let mut from = most;
        while from > 0 {
            screen.set_scrollback(from);
            let rows = screen.rows(0, width).take(from.min(height.into()));
            for row in rows {
                text += row.trim_end();
                text.push('\n');
            }
            from = from.saturating_sub(height.into());
        }
        screen.set_scrollback(0);
        text + &tidy(&screen.contents())
    }

    /// The scrollback and the screen as lines with escape sequences for their colours.
    pub(crate) fn styled_lines(&self) -> Vec<String> {
        let (output, _) = &*self.output;
        let mut output = output.lock().unwrap();
        let screen = output.parser.screen_mut();
        screen.set_scrollback(usize::MAX);
        let mut lines = Vec::new();
        let (height, _) = screen.size();
        // Each step shows one more line at the bottom; the last one shows the screen itself.
        for from in (1..=screen.scrollback()).rev() {
            screen.set_scrollback(from);
            lines.push(styled_row(screen, 0));
        }
        screen.set_scrollback(0);
        lines.extend((0..height.get()).map(|row| styled_row(screen, row)));
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// Waits until a text is on the screen or in the scrollback.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str) {
        self.wait_until_text(text, |all| all.contains(text));
    }

    /// Waits until the screen and the scrollback satisfy a condition.
    #[track_caller]
    fn wait_until_text(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let (output, changed) = &*self.output;
        let end = Instant::now() + TIMEOUT;
        loop {
            let all = self.full_text();
            if wanted(&all) {
                return;
            }
            assert!(Instant::now() < end, "waited for {what:?} and saw:\n{all}");
            // Output may have arrived since: look again soon.
            let output = output.lock().unwrap();
            drop(
                changed
                    .wait_timeout(output, Duration::from_millis(50))
                    .unwrap(),
            );
        }
    }

    /// Waits until a text is on the screen or in the scrollback, wherever its lines are broken.
    #[track_caller]
    pub(crate) fn wait_for_words(&self, text: &str) {
        let joined = |text: &str| text.replace(|it: char| it.is_whitespace() || it == '┊', "");
        let wanted = joined(text);
        self.wait_until_text(text, |all| joined(all).contains(&wanted));
    }

    /// The line of the screen that contains a text, with its escape sequences.
    pub(crate) fn formatted_line(&self, text: &str) -> String {
        let (output, _) = &*self.output;
        let output = output.lock().unwrap();
        let screen = output.parser.screen();
        let (_, width) = screen.size();
        let width = width.get();
        let mut rows = screen.rows(0, width).zip(screen.rows_formatted(0, width));
        let row = rows.find(|(plain, _)| plain.contains(text));
        row.unwrap().1
    }

    /// Waits until the terminal got a text, which may contain escape sequences.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&self, text: &str) {
        let (output, changed) = &*self.output;
        let mut output = output.lock().unwrap();
        let end = Instant::now() + TIMEOUT;
        while !String::from_utf8_lossy(&output.bytes).contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !output.ended, "waited for {text:?}");
            output = changed.wait_timeout(output, left).unwrap().0;
        }
    }

    /// All output so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (output, _) = &*self.output;
        output.lock().unwrap().bytes.clone()
    }

    /// Kills the chat without warning.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let outer = Pid::from_child(&self.child);
        // `setsid` waits for the chat, which is its child.
        let number = outer.as_raw_nonzero();
        let file = format!("/proc/{number}/task/{number}/children");
        let below = std::fs::read_to_string(file).unwrap_or_default();
        let below = below.split_whitespace().filter_map(|it| it.parse().ok());
        let all: Vec<_> = below.filter_map(Pid::from_raw).chain([outer]).collect();
        let handles = all
            .iter()
            .filter_map(|pid| Handle::from_pid(pid.as_raw_nonzero().get()).ok());
        let handles: Vec<_> = handles.collect();
        for pid in &all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // The next process that opens the session must find this one gone.
        for handle in handles {
            assert!(
                handle.wait(Some(TIMEOUT)).unwrap(),
                "the process does not end"
            );
        }
        let _ = self.child.wait();
    }

    /// Waits for the end and returns the exit code and the last screen.
    pub(crate) fn exit(mut self) -> (i32, String) {
        let (output, changed) = &*self.output;
        let mut all = output.lock().unwrap();
        let end = Instant::now() + TIMEOUT;
        while !all.ended {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "the chat does not end:\n{}",
                all.parser.screen().contents()
            );
            all = changed.wait_timeout(all, left).unwrap().0;
        }
        let screen = tidy(&all.parser.screen().contents());
        drop(all);
        (self.child.wait().unwrap().code().unwrap_or(-1), screen)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.end();
        }
    }
}

fn some(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn size(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn read(mut from: File, all: &(Mutex<Output>, Condvar)) {
    let (output, changed) = all;
    let mut buffer = [0; 16 * 1024];
    loop {
        // Reading from a terminal without a slave fails instead of reporting the end.
        let count = from.read(&mut buffer).unwrap_or(0);
        let mut output = output.lock().unwrap();
        output.ended = count == 0;
        output.parser.process(&buffer[..count]);
        output.bytes.extend(&buffer[..count]);
        changed.notify_all();
        if count == 0 {
            return;
        }
    }
}

fn tidy(screen: &str) -> String {
    let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// A row of the screen with escape sequences for its colours.
fn styled_row(screen: &vt100::Screen, row: u16) -> String {
    let (_, width) = screen.size();
    let (mut line, mut last) = (String::new(), String::new());
    for column in 0..width.get() {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        if cell.is_wide_continuation() {
            continue;
        }
        let mut style = "\x1b[0m".to_owned();
        if cell.bold() {
            style += "\x1b[1m";
        }
        if cell.dim() {
            style += "\x1b[2m";
        }
        if let vt100::Color::Idx(colour @ 0..=7) = cell.fgcolor() {
            let _ = write!(style, "\x1b[3{colour}m");
        }
        if style != last {
            line += &style;
            last = style;
        }
        line += if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
    }
    let plain = line.trim_end();
    if plain.replace("\x1b[0m", "").trim().is_empty() {
        return String::new();
    }
    plain.to_owned()
}
