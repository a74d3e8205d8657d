//! `cargo xtask order`: regenerates the order in which the linker places functions.
//!
//! A cold `rye execute` runs one megabyte of code that is spread over thirty-five, and each
//! first access of a page is a page fault. `crates/rye/order.ld` lists the functions that such
//! calls run, and the linker places them together. Only speed depends on it: names that no
//! longer exist are ignored.

mod trace;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::output::print_line;
use crate::paths;
use crate::process::{capture, cargo, program, run};
use trace::Functions;

/// Patterns of function names by the calls that run them (one bit per call) and by the
/// pattern of their file.
type Patterns = BTreeMap<(Reverse<u32>, u32), BTreeMap<String, BTreeSet<String>>>;

/// Typical tools: a Python script, a bash script and a command.
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

/// First request of an MCP client.
const INITIALIZE: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":\
    {\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\
    \"clientInfo\":{\"name\":\"order\",\"version\":\"1\"}}}\n";

/// Builds `rye` with a linker map, traces some calls, and writes the list.
pub(crate) fn main() -> Result<()> {
    let directory = paths::cache_dir("order");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(directory.join("project/.ai/tools"))?;
    let map = directory.join("map");
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
    run(&mut cargo(build.into_iter().chain(["-C", &link])))?;
    let rye = paths::built_program("release", "rye")?;
    let ran = trace_calls(&rye, &directory)?;
    let map = fs::read_to_string(&map).context("the linker wrote no map")?;
    let patterns = patterns(&map, &ran);
    ensure!(
        !patterns.is_empty(),
        "the linker map contains none of the traced functions"
    );
    let list = paths::workspace().join("crates/rye/order.ld");
    fs::write(&list, linker_script(&patterns))?;
    let names = patterns.values().flat_map(BTreeMap::values);
    let count: usize = names.map(BTreeSet::len).sum();
    print_line!("{count} functions in {}", list.display());
    Ok(())
}

/// Addresses of the functions that warm calls run, each with one bit per call.
fn trace_calls(rye: &Path, directory: &Path) -> Result<BTreeMap<u64, u32>> {
    let project = directory.join("project");
    for (name, text) in TOOLS {
        fs::write(project.join(".ai/tools").join(name), text)?;
    }
    let hello = directory.join("hello");
    fs::write(&hello, INITIALIZE)?;
    let rye_command = |args: &[&str]| -> Result<Command> {
        let mut command = program(rye, args);
        command
            .current_dir(&project)
            .env_clear()
            .env("HOME", directory.join("user"))
            .env("PATH", "/usr/bin:/bin")
            .stdin(fs::File::open(&hello)?)
            .stdout(Stdio::null());
        Ok(command)
    };
    fs::create_dir_all(directory.join("user"))?;
    capture(&mut rye_command(&["init"])?)?;
    capture(&mut rye_command(&["sign", "--all"])?)?;
    let functions = Functions::load(rye)?;
    let calls: [&[&str]; 4] = [
        &["mcp", "serve"],
        &["execute", "greet"],
        &["execute", "say"],
        &["execute", "echo"],
    ];
    let mut ran = BTreeMap::new();
    for (bit, call) in calls.iter().enumerate() {
        capture(&mut rye_command(call)?)?;
        print_line!("$ rye {}", call.join(" "));
        let mut traced = BTreeSet::new();
        functions.trace(&mut rye_command(call)?, &mut traced)?;
        for function in traced {
            *ran.entry(function).or_default() |= 1 << bit;
        }
    }
    Ok(ran)
}

/// Patterns of the sections that ran, without the parts of names that change between builds.
fn patterns(map: &str, ran: &BTreeMap<u64, u32>) -> Patterns {
    let mut sections: Vec<_> = map.lines().filter_map(parse_section).collect();
    sections.sort_unstable_by_key(|(start, ..)| *start);
    let mut callers: BTreeMap<(String, String), u32> = BTreeMap::new();
    for (address, calls) in ran {
        let after = sections.partition_point(|(start, ..)| start <= address);
        let Some((start, size, file, name)) = after.checked_sub(1).map(|at| sections[at]) else {
            continue;
        };
        if *address < start + size && name.starts_with(".text") {
            let section = (file_pattern(file), name_pattern(name));
            *callers.entry(section).or_default() |= calls;
        }
    }
    let mut patterns = Patterns::new();
    for ((file, name), calls) in callers {
        let group = patterns.entry((Reverse(calls.count_ones()), calls));
        group.or_default().entry(file).or_default().insert(name);
    }
    patterns
}

/// Parses a line of the linker map: address, size, file and name of a section.
fn parse_section(line: &str) -> Option<(u64, u64, &str, &str)> {
    let mut words = line.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (start, _, size) = (number()?, number()?, number()?);
    let (file, name) = words.nth(1)?.rsplit_once(":(")?;
    Some((start, size, file, name.strip_suffix(')')?))
}

/// Turns `…/libtokio-0123456789abcdef.rlib(….o)` into `*libtokio-*.rlib:*`; a member of the C
/// library keeps its name.
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

/// A symbol name with wildcards for hashes: `17h` and sixteen digits at the end (legacy
/// mangling), `Cs…_` before crate names (v0 mangling), and LLVM suffixes.
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

/// The linker script; functions that most calls run come first.
fn linker_script(patterns: &Patterns) -> String {
    let mut script = "/* Functions that short calls run, placed together: see build.rs.\n   \
         Written by `cargo xtask order`. */\n\
         SECTIONS\n{\n  .text.call :\n  {\n"
        .to_owned();
    for (file, names) in patterns.values().flatten() {
        let names: Vec<_> = names.iter().map(|name| format!("      {name}\n")).collect();
        let _ = write!(script, "    {file}(\n{})\n", names.concat());
    }
    script + "  }\n}\nINSERT BEFORE .text;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_in_file_and_function_names_become_wildcards() {
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
    fn functions_are_sorted_by_number_of_calls_and_unused_ones_omitted() {
        let map = "             VMA              LMA     Size Align Out     In      Symbol\n\
                   a9ed40   a9ed40       26    16         /usr/lib/crt1.o:(.text)\n\
                   a9ee00   a9ee00       10    16         /x/liba-0f.rlib(a.o):(.text._ZN1a17h0123456789abcdefE)\n\
                   a9ee00   a9ee00       10     1                 a::a\n\
                   a9ee10   a9ee10       10    16         /x/liba-0f.rlib(a.o):(.text._ZN1b17h0123456789abcdefE)\n\
                   b00000   b00000       10    16         /x/liba-0f.rlib(a.o):(.data.x)\n";
        let ran = BTreeMap::from([
            (0xa9_ed41, 1),
            (0xa9_ee0f, 3),
            (0xb0_0000, 1),
            (0xff_ffff, 1),
        ]);
        let script = linker_script(&patterns(map, &ran));
        let of_both = "    *liba-*.rlib:*(\n      .text._ZN1a17h*E\n)\n";
        assert!(
            script.contains(&format!("{of_both}    *crt1.o(\n      .text\n)\n")),
            "{script}"
        );
        assert!(
            !script.contains("_ZN1b") && !script.contains(".data"),
            "{script}"
        );
    }
}
