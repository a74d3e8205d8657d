//! A real terminal: a pseudo-terminal whose other end is read by an emulator.

use std::ffi::OsStr;
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

use crate::support::World;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// How much the emulator remembers of what has scrolled away.
const SCROLLBACK: usize = 5000;

/// What has come so far.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    ended: bool,
}

impl Seen {
    /// Whether the end of a picture is still to come.
    fn is_painting(&self) -> bool {
        let last = |mark: &[u8]| self.bytes.windows(mark.len()).rposition(|it| it == mark);
        last(b"\x1b[?2026h") > last(b"\x1b[?2026l")
    }
}

/// A chat on a terminal.
pub(crate) struct Window<'a> {
    /// Where it lives.
    _world: &'a World,
    master: File,
    child: Child,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl<'a> Window<'a> {
    pub(crate) fn open(world: &'a World, args: &[&str], (width, height): (u16, u16)) -> Self {
        Self::with(world, args, (width, height), &[])
    }

    pub(crate) fn with(
        world: &'a World,
        args: &[&str],
        size: (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let rye = world.command();
        let mut line = vec![rye.get_program(), OsStr::new("chat")];
        line.extend(args.iter().map(OsStr::new));
        Self::start(world, &line, size, variables)
    }

    /// A shell, which finds the binary as `$RYE`.
    pub(crate) fn shell(world: &'a World, script: &str, size: (u16, u16)) -> Self {
        let rye = world.command();
        let path = rye.get_program().to_str().unwrap();
        let line = ["sh", "-c", script].map(OsStr::new);
        Self::start(world, &line, size, &[("RYE", path)])
    }

    fn start(
        world: &'a World,
        line: &[&OsStr],
        (width, height): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(width, height)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(OsStr::from_bytes(name.as_bytes()));
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let [input, output, error] = [(); 3].map(|()| slave.try_clone().unwrap());
        drop(slave);
        let rye = world.command();
        // So that the terminal is its own, and it hears of new sizes.
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
        command.stdin(input).stdout(output).stderr(error);
        let child = command.process_group(0).spawn().unwrap();
        let master = File::from(master);
        let seen = Seen {
            parser: vt100::Parser::new(some(height), some(width), SCROLLBACK),
            bytes: Vec::new(),
            ended: false,
        };
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let (reader, all) = (master.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || read(reader, &all));
        Self {
            _world: world,
            master,
            child,
            seen,
        }
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        let (seen, _) = &*self.seen;
        let mut seen = seen.lock().unwrap();
        seen.parser.screen_mut().set_size(some(height), some(width));
        tcsetwinsize(&self.master, size(width, height)).unwrap();
    }

    /// The same where it may have ended: then nobody reads it.
    pub(crate) fn try_press(&self, keys: &str) {
        let _ = (&self.master).write_all(keys.as_bytes());
    }

    /// Another size, and the picture that is painted anew for it.
    #[track_caller]
    pub(crate) fn resized(&self, width: u16, height: u16) {
        let (seen, news) = &*self.seen;
        let before = seen.lock().unwrap().bytes.len();
        self.resize(width, height);
        let mut seen = seen.lock().unwrap();
        let end = Instant::now() + PATIENCE;
        // From the first corner on: that is done for nothing else.
        let is_new = |bytes: &[u8]| bytes.windows(3).any(|it| it == b"\x1b[H");
        while !is_new(&seen.bytes[before..]) || seen.is_painting() {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !seen.ended, "it is not painted anew");
            seen = news.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Waits until the screen is as it is wanted.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        match self.until_or_end(what, wanted) {
            Ok(screen) => screen,
            Err(screen) => panic!("waited for {what} and it ended:\n{screen}"),
        }
    }

    /// The same, or what was to be seen when it ended.
    #[track_caller]
    pub(crate) fn until_or_end(
        &self,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let (seen, news) = &*self.seen;
        let mut seen = seen.lock().unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = tidy(&seen.parser.screen().contents());
            // A picture counts once it is whole.
            if !seen.is_painting() && wanted(&screen) {
                return Ok(screen);
            }
            if seen.ended {
                return Err(screen);
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what} and saw:\n{screen}");
            seen = news.wait_timeout(seen, left).unwrap().0;
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits until nobody works and nobody is asked.
    #[track_caller]
    pub(crate) fn ready(&self) -> String {
        self.until("ready", |screen| screen.contains("ready ·"))
    }

    /// All that can be scrolled back to, and the screen.
    pub(crate) fn scrolled(&self) -> String {
        let (seen, _) = &*self.seen;
        let mut seen = seen.lock().unwrap();
        let screen = seen.parser.screen_mut();
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

    /// A line of the screen, with what gives it its colours.
    pub(crate) fn painted(&self, text: &str) -> String {
        let (seen, _) = &*self.seen;
        let seen = seen.lock().unwrap();
        let screen = seen.parser.screen();
        let (_, width) = screen.size();
        let width = width.get();
        let mut rows = screen.rows(0, width).zip(screen.rows_formatted(0, width));
        let row = rows.find(|(plain, _)| plain.contains(text));
        row.unwrap().1
    }

    /// Every byte that came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (seen, _) = &*self.seen;
        seen.lock().unwrap().bytes.clone()
    }

    /// Ends it as a machine does that loses its power.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let outer = Pid::from_child(&self.child);
        // `setsid` waits for the chat, which is in a session of its own below it.
        let number = outer.as_raw_nonzero();
        let file = format!("/proc/{number}/task/{number}/children");
        let below = std::fs::read_to_string(file).unwrap_or_default();
        let below = below.split_whitespace().filter_map(|it| it.parse().ok());
        let all: Vec<_> = below.filter_map(Pid::from_raw).chain([outer]).collect();
        let handles = all
            .iter()
            .filter_map(|pid| Handle::of_running(pid.as_raw_nonzero().get()).ok());
        let handles: Vec<_> = handles.collect();
        for pid in &all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // Whoever goes on with its session must find it gone, to its last thread.
        for handle in handles {
            assert!(handle.wait(Some(PATIENCE)).unwrap(), "it cannot be killed");
        }
        let _ = self.child.wait();
    }

    /// How it ended.
    pub(crate) fn exit(mut self) -> (i32, String) {
        let (seen, news) = &*self.seen;
        let mut all = seen.lock().unwrap();
        let end = Instant::now() + PATIENCE;
        while !all.ended {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "it does not end:\n{}",
                all.parser.screen().contents()
            );
            all = news.wait_timeout(all, left).unwrap().0;
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

fn read(mut from: File, all: &(Mutex<Seen>, Condvar)) {
    let (seen, news) = all;
    let mut buffer = [0; 16 * 1024];
    loop {
        // A terminal that nobody holds any more gives an error, not an end.
        let count = from.read(&mut buffer).unwrap_or(0);
        let mut seen = seen.lock().unwrap();
        seen.ended = count == 0;
        seen.parser.process(&buffer[..count]);
        seen.bytes.extend(&buffer[..count]);
        news.notify_all();
        if count == 0 {
            return;
        }
    }
}

fn tidy(screen: &str) -> String {
    let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}
