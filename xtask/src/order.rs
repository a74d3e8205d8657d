//! `cargo xtask order`: which functions a short call runs, for the linker to keep together.
//!
//! A cold `rye execute` runs a megabyte of code, which is spread over thirty-five: each
//! place that it comes to for the first time is a page fault. `crates/rye/order.ld` names
//! the functions that such calls run, and the linker puts them side by side. Nothing but
//! speed depends on it: a name that is no longer there is passed over.

mod trace;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::place;
use crate::run::{cargo, output, program, show};
use crate::say::say;

/// Tools as most are: a script of Python, one of bash, a command.
const TOOLS: [(&str, &str); 3] = [
    (
        "greet.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}}\n\
         print('{}')\n",
    ),
    (
        "say.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\necho '{}'\n",
    ),
    (
        "echo.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig: { command: echo }\n",
    ),
];

/// What a client says to a server first.
const HELLO: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":\
    {\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\
    \"clientInfo\":{\"name\":\"order\",\"version\":\"1\"}}}\n";

/// Builds `rye` with a map of where everything is, watches what some calls run, and
/// writes the list.
pub(crate) fn main() -> Result<()> {
    let folder = place::kept("order");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("project/.ai/tools"))?;
    let map = folder.join("map");
    let link = format!("link-arg=-Wl,-Map={}", map.display());
    let build = [
        "rustc",
        "--locked",
        "--release",
        "--package",
        "rye",
        "--bin",
        "rye",
        "--",
    ];
    show(&mut cargo(build.into_iter().chain(["-C", &link])))?;
    let rye = place::built("release", "rye")?;
    let addresses = watch(&rye, &folder)?;
    let map = fs::read_to_string(&map).context("the linker wrote no map")?;
    let patterns = patterns(&map, &addresses);
    ensure!(!patterns.is_empty(), "the map tells of none of what ran");
    let list = place::workspace().join("crates/rye/order.ld");
    fs::write(&list, script(&patterns))?;
    let count: usize = patterns.values().map(BTreeSet::len).sum();
    say!("{count} functions in {}", list.display());
    Ok(())
}

/// The addresses that are run by calls whose files were all read before.
fn watch(rye: &Path, folder: &Path) -> Result<HashSet<u64>> {
    let project = folder.join("project");
    for (name, text) in TOOLS {
        fs::write(project.join(".ai/tools").join(name), text)?;
    }
    let hello = folder.join("hello");
    fs::write(&hello, HELLO)?;
    let here = |words: &[&str]| -> Command {
        let mut command = program(rye, words);
        command
            .current_dir(&project)
            .env_clear()
            .env("HOME", folder.join("user"))
            .env("PATH", "/usr/bin:/bin")
            .stdout(Stdio::null());
        command
    };
    fs::create_dir_all(folder.join("user"))?;
    output(&mut here(&["init"]))?;
    output(&mut here(&["sign", "--all"]))?;
    let mut addresses = HashSet::new();
    for (name, _) in TOOLS {
        let (id, _) = name.split_once('.').unwrap_or((name, ""));
        let call = ["execute", id];
        output(&mut here(&call))?;
        say!("$ rye {}, step by step", call.join(" "));
        trace::trace(&mut here(&call), &mut addresses)?;
    }
    say!("$ rye mcp serve, step by step");
    let mut serve = here(&["mcp", "serve"]);
    trace::trace(serve.stdin(fs::File::open(&hello)?), &mut addresses)?;
    Ok(addresses)
}

/// The names of the sections that were run, by the files that they come from. Both as
/// patterns: what a compiler or a version changes about them is left open.
fn patterns(map: &str, addresses: &HashSet<u64>) -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: Vec<_> = map.lines().filter_map(section).collect();
    sections.sort_unstable_by_key(|(start, ..)| *start);
    let mut patterns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for address in addresses {
        let after = sections.partition_point(|(start, ..)| start <= address);
        let Some((start, size, file, name)) = after.checked_sub(1).map(|at| sections[at]) else {
            continue;
        };
        if *address < start + size && name.starts_with(".text") {
            let names = patterns.entry(file_pattern(file)).or_default();
            names.insert(name_pattern(name));
        }
    }
    patterns
}

/// A line of the linker's map: where a section is, how long, of which file, its name.
fn section(line: &str) -> Option<(u64, u64, &str, &str)> {
    let mut words = line.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (start, _, size) = (number()?, number()?, number()?);
    let (file, name) = words.nth(1)?.rsplit_once(":(")?;
    Some((start, size, file, name.strip_suffix(')')?))
}

/// `…/libtokio-0123456789abcdef.rlib(….o)` as `*libtokio-*.rlib:*`, a member of the C
/// library by its name.
fn file_pattern(file: &str) -> String {
    let base = |path: &str| {
        let name = Path::new(path).file_name();
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    match file.split_once('(') {
        Some((archive, member)) => {
            let archive = base(archive);
            match archive
                .strip_suffix(".rlib")
                .and_then(|it| it.rsplit_once('-'))
            {
                Some((library, _)) => format!("*{library}-*.rlib:*"),
                None => format!("*{archive}:{}", member.trim_end_matches(')')),
            }
        }
        None => match base(file).split_once('-') {
            Some((program, _)) => format!("*{program}-*.o"),
            None => format!("*{}", base(file)),
        },
    }
}

/// A name without the hashes in it: `17h` and sixteen digits near its end, or `Cs…_`
/// before the names of crates, and what a compiler appends to names of its own.
fn name_pattern(name: &str) -> String {
    if let Some((name, _)) = name.split_once(".llvm.") {
        return format!("{}.llvm.*", name_pattern(name));
    }
    if let Some(at) = name.rfind("17h")
        && name.len() == at + 20
    {
        return format!("{}17h*E", &name[..at]);
    }
    if !name.contains("._R") {
        return name.to_owned();
    }
    let mut parts = name.split("Cs");
    let mut pattern = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('_') {
            Some((hash, rest)) if hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                pattern = format!("{pattern}Cs*_{rest}");
            }
            _ => pattern = format!("{pattern}Cs{part}"),
        }
    }
    pattern
}

fn script(patterns: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut script = "/* What a short call runs, side by side: see build.rs.\n   \
         Written by `cargo xtask order`. */\n\
         SECTIONS\n{\n  .text.call :\n  {\n"
        .to_owned();
    for (file, names) in patterns {
        let names: Vec<_> = names.iter().map(|name| format!("      {name}\n")).collect();
        let _ = write!(script, "    {file}(\n{})\n", names.concat());
    }
    script + "  }\n}\nINSERT BEFORE .text;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_left_open_in_the_names_of_files_and_functions() {
        for (file, pattern) in [
            (
                "/x/deps/libtokio-9f3b1573ddcda463.rlib(tokio-9f.tokio.8a-cgu.0.rcgu.o)",
                "*libtokio-*.rlib:*",
            ),
            ("/usr/lib/libc.a(malloc.o)", "*libc.a:malloc.o"),
            ("/x/deps/rye-0123.rye.45-cgu.07.rcgu.o", "*rye-*.o"),
            ("/usr/lib/crt1.o", "*crt1.o"),
        ] {
            assert_eq!(file_pattern(file), pattern);
        }
        for (name, pattern) in [
            (
                ".text._ZN5tokio4poll17h9fbc738bf4b68de3E",
                ".text._ZN5tokio4poll17h*E",
            ),
            (
                ".text._RNvNtCslNYArtu3iFV_5alloc3fmtCs1_4core",
                ".text._RNvNtCs*_5alloc3fmtCs*_4core",
            ),
            (
                ".text._ZN1a17h9fbc738bf4b68de3E.llvm.501",
                ".text._ZN1a17h*E.llvm.*",
            ),
            (".text.evex", ".text.evex"),
        ] {
            assert_eq!(name_pattern(name), pattern);
        }
    }

    #[test]
    fn what_was_run_is_found_in_the_map_and_what_was_not_is_left_out() {
        let map = "             VMA              LMA     Size Align Out     In      Symbol\n\
                   a9ed40   a9ed40       26    16         /usr/lib/crt1.o:(.text)\n\
                   a9ee00   a9ee00       10    16         /x/liba-0f.rlib(a.o):(.text._ZN1a17h0123456789abcdefE)\n\
                   a9ee00   a9ee00       10     1                 a::a\n\
                   a9ee10   a9ee10       10    16         /x/liba-0f.rlib(a.o):(.text._ZN1b17h0123456789abcdefE)\n\
                   b00000   b00000       10    16         /x/liba-0f.rlib(a.o):(.data.x)\n";
        let ran = HashSet::from([0xa9_ed41, 0xa9_ee0f, 0xb0_0000, 0xff_ffff]);
        let script = script(&patterns(map, &ran));
        assert!(
            script.contains("    *crt1.o(\n      .text\n)\n"),
            "{script}"
        );
        assert!(
            script.contains("    *liba-*.rlib:*(\n      .text._ZN1a17h*E\n)\n"),
            "{script}"
        );
        assert!(
            !script.contains("_ZN1b") && !script.contains(".data"),
            "{script}"
        );
    }
}
