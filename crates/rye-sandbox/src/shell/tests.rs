//! Valid, invalid and abusive scripts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use rye_engine::sandbox::{ExecObserver, ExecOutput};

use super::{Invocation, Shell};
use crate::files::{Files, Limits};

struct Discard;

impl ExecObserver for Discard {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}
}

fn files() -> Mutex<Files> {
    let limits = Limits {
        bytes: 1 << 20,
        files: 200,
    };
    Mutex::new(Files::new(limits))
}

async fn run_with(script: &str, stdin: &str, time: Duration) -> ExecOutput {
    let invocation = Invocation {
        script: script.into(),
        cwd: String::new(),
        env: BTreeMap::from([("NAME".into(), "Ada L".into())]),
        stdin: stdin.into(),
        time,
        max_output: Some(1 << 16),
        max_streamed: None,
    };
    let files = files();
    Shell::run(invocation, &files, &Discard).await
}

async fn run(script: &str) -> ExecOutput {
    run_with(script, "from outside\n", Duration::from_mins(1)).await
}

#[tokio::test]
async fn output_matches_a_posix_shell() {
    let cases = [
        ("", ""),
        ("# nothing", ""),
        ("echo hello   world", "hello world\n"),
        ("echo -n a; echo -e 'b\\tc'", "ab\tc\n"),
        (
            "echo 'a  b' \"c $NAME\" $NAME d\\ e",
            "a  b c Ada L Ada L d e\n",
        ),
        (
            "printf '<%s>' $NAME; printf '<%s>' \"$NAME\"",
            "<Ada><L><Ada L>",
        ),
        ("printf '<%s>' a'b'\"c\"d '' \"\"", "<abcd><><>"),
        ("X=1; Y=\"$X ${X}2\"; echo $Y $UNSET end", "1 12 end\n"),
        ("echo '$NAME' \"\\$NAME\" $ a$", "$NAME $NAME $ a$\n"),
        ("false; echo $?; true; echo $?", "1\n0\n"),
        ("true && echo a || echo b", "a\n"),
        ("false && echo a || echo b", "b\n"),
        ("false || false && echo a; echo b", "b\n"),
        ("echo a &&\n echo b", "a\nb\n"),
        ("echo a \\\n b", "a b\n"),
        ("cat", "from outside\n"),
        ("cat; cat", "from outside\n"),
        ("true < /dev/null; cat | wc -c", "13\n"),
        (
            "printf 'b\\na\\nb\\n' | sort | uniq -c",
            "      1 a\n      2 b\n",
        ),
        ("printf '10\\n9\\n-1\\n' | sort -n", "-1\n9\n10\n"),
        ("printf '10\\n9\\n10\\n' | sort -rnu", "10\n9\n"),
        (
            "seq 5 | head -n 2; seq 5 | tail -2; seq 5 | tail -n +4",
            "1\n2\n4\n5\n4\n5\n",
        ),
        ("seq 3 -1 1; seq 2 1", "3\n2\n1\n"),
        ("echo abc | head -c 2; echo abc | tail -c 2", "abc\n"),
        ("printf 'a b\\nc\\n' | wc; printf ü | wc -m", "2 3 6\n1\n"),
        (
            "echo a > f; echo b >> f; cat < f; cat -n f",
            "a\nb\n     1\ta\n     2\tb\n",
        ),
        ("ls missing 2>&1 > f | wc -l; wc -c < f", "1\n0\n"),
        ("ls missing > f 2>&1; wc -l < f", "1\n"),
        ("ls missing &> f; wc -l f", "1 f\n"),
        ("echo a > /dev/null; echo b >&2; echo c", "c\n"),
        (
            "mkdir -p a/b; cd a/b; pwd; echo $PWD; cd ../..; pwd",
            "/workspace/a/b\n/workspace/a/b\n/workspace\n",
        ),
        ("mkdir d; cd d | true; pwd", "/workspace\n"),
        ("touch b a .c; ls; echo *; ls -A", "a\nb\na b\n.c\na\nb\n"),
        (
            "mkdir -p x/y; touch x/1.txt x/y/2.txt; echo */*.txt x/?/* *.no '*'",
            "x/1.txt x/y/2.txt *.no *\n",
        ),
        ("mkdir x; touch x/a; ls -R", ".:\nx\n\n./x:\na\n"),
        ("echo 1 > a; cp a b; mv a c; cat b c; ls", "1\n1\nb\nc\n"),
        (
            "mkdir d; echo 1 > d/a; cp -r d e; rm -r d; cat e/a; ls",
            "1\ne\n",
        ),
        (
            "mkdir d; echo 1 > a; mv a d; cat d/a /workspace/d/a",
            "1\n1\n",
        ),
        (
            "printf 'foo\\nbar\\nFoo\\n' | grep -in foo",
            "1:foo\n3:Foo\n",
        ),
        (
            "printf 'a+b\\naab\\n' | grep 'a+b'; printf 'a+b\\naab\\n' | grep -E 'a+b'",
            "a+b\naab\n",
        ),
        ("printf 'x=1 y=22\\n' | grep -oE '[0-9]+'", "1\n22\n"),
        (
            "mkdir d; echo hit > d/f; echo no > g; grep -r hit; grep -rl hit d; grep -c hit g",
            "d/f:hit\nd/f\n0\n",
        ),
        (
            "test -f no || echo none; [ 2 -gt 1 ] && echo more; [ ! -d x -a 1 = 1 ] && echo both",
            "none\nmore\nboth\n",
        ),
        (
            "printf '%s=%03d|%-4s|%x%%\\n' a 7 b 255 c",
            "a=007|b   |ff%\nc=000|    |0%\n",
        ),
        ("export A=1 B='2 3'; echo $A $B", "1 2 3\n"),
        ("echo a; exit 3; echo b", "a\n"),
        ("exit 3 | cat; echo $?", "0\n"),
        ("X='a*'; touch ab; echo $X \"$X\"", "ab a*\n"),
        ("A=1 echo $A.", ".\n"),
    ];
    for (script, stdout) in cases {
        let executed = run(script).await;
        assert_eq!(executed.stdout, stdout, "{script}\n{}", executed.stderr);
        assert!(!executed.timed_out && !executed.truncated, "{script}");
    }
}

#[tokio::test]
async fn exit_status_matches_a_posix_shell() {
    let cases = [
        ("", 0),
        ("true", 0),
        ("false", 1),
        ("false | true", 0),
        ("true | false", 1),
        ("exit 300", 44),
        ("nonsense", 127),
        ("cat missing", 1),
        ("cat missing && true", 1),
        ("ls missing", 2),
        ("grep x missing", 2),
        ("echo a | grep b", 1),
        ("grep '(' -E", 2),
        ("[ a", 2),
        ("test 1 -eq x", 2),
        ("rm missing", 1),
        ("rm -f missing", 0),
        ("mkdir a; rm a", 1),
        ("rm -r /workspace", 1),
        ("cp a b", 1),
        ("mkdir a; cp -r a a/b", 1),
        ("mkdir a; echo x > a", 1),
        ("echo x > no/f", 1),
        ("cat < missing", 1),
        ("cd missing", 1),
        ("cd ..", 1),
        ("cat /etc/passwd", 1),
        ("echo x > ../f", 1),
        ("sleep x", 1),
        ("seq 1 0 2", 1),
        ("printf '%99999d' 1", 1),
        ("head --lines", 1),
        ("cat f; head -n -5", 1),
        ("sleep -1", 1),
    ];
    for (script, code) in cases {
        let executed = run(script).await;
        assert_eq!(executed.exit_code, Some(code), "{script}\n{executed:?}");
    }
}

#[tokio::test]
async fn unsupported_scripts_are_rejected_before_running() {
    let cases = [
        "echo a > f; echo 'open",
        "echo \"open",
        "echo a |",
        "| echo a",
        "echo a &&",
        "&& echo a",
        "echo a ;; echo b",
        "; echo a",
        "echo a &",
        "echo a >",
        "cat << END",
        "echo $(date)",
        "echo `date`",
        "echo ${X:-1}",
        "echo ${X",
        "(echo a)",
        "if true; then echo a; fi",
        "for i in a; do echo $i; done",
        "while true; do echo a; done",
        "{ echo a; }",
        "echo a >&3",
    ];
    for script in cases {
        let executed = run(script).await;
        assert_eq!(executed.exit_code, Some(2), "{script}\n{executed:?}");
        assert_eq!(executed.stdout, "", "{script}");
        assert!(!executed.stderr.is_empty(), "{script}");
    }
}

#[tokio::test]
async fn scripts_over_their_limits_are_stopped() {
    let doubled = format!("X=aaaaaaaa{}", "; X=$X$X".repeat(40));
    let stars = format!("mkdir a b c d e f g h i j; echo {}*", "*/../".repeat(12));
    let long = format!("echo {}", "x".repeat(70_000));
    let cases = [
        ("seq 1 100000000 | wc -l", 137),
        ("seq 1 1000000000000", 137),
        ("seq 1 100000000 > f", 1),
        (doubled.as_str(), 137),
        (stars.as_str(), 137),
        (long.as_str(), 2),
        ("seq 1 2000 > f; grep -E '((a{50}){50}){50}' f", 2),
    ];
    for (script, code) in cases {
        let executed = run(script).await;
        assert_eq!(
            executed.exit_code,
            Some(code),
            "{:.60}\n{}",
            script,
            executed.stderr
        );
    }
}

#[tokio::test(start_paused = true)]
async fn sleep_waits_and_respects_the_timeout() {
    let executed = run("sleep 1 0.5s; echo a").await;
    assert_eq!(executed.stdout, "a\n");
    let executed = run("echo a; sleep 1e300").await;
    assert_eq!(executed.exit_code, Some(1));
    let executed = run("echo a; sleep 3600; echo b").await;
    assert!(executed.timed_out);
    assert_eq!(
        (executed.exit_code, executed.stdout.as_str()),
        (None, "a\n")
    );
}

/// Nearly valid scripts.
fn scripts() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "echo",
            "cat",
            "ls",
            "rm",
            "-r",
            "-n",
            "grep",
            "printf",
            "seq",
            "test",
            "[",
            "]",
            "sort",
            "uniq",
            "-c",
            "head",
            "tail",
            "cp",
            "mv",
            "mkdir",
            "-p",
            "cd",
            "..",
            ".",
            "a",
            "b/c",
            "*",
            "?",
            "*/../*",
            "'",
            "\"",
            "'x'",
            "\"$A\"",
            "$A",
            "${A}",
            "$?",
            "\\",
            "|",
            "||",
            "&&",
            ";",
            "\n",
            ">",
            ">>",
            "<",
            "2>&1",
            "&>",
            "#",
            "A=1",
            "A=$A$A",
            "%s",
            "%5d",
            "99999999999999999999",
            "-1",
            "+3",
            "3",
            "/workspace",
            "/dev/null",
            "é",
            "exit",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,8}",
    ];
    (prop::collection::vec(word, 0..30), prop::bool::ANY)
        .prop_map(|(words, spaced)| words.join(if spaced { " " } else { "" }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_script_terminates(script in scripts()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let executed = runtime.block_on(run(&script));
        prop_assert!(executed.timed_out != executed.exit_code.is_some());
    }

    #[test]
    fn parser_never_panics(script in "\\PC{0,200}") {
        let _ = super::parse::parse(&script);
    }

    #[test]
    fn quoted_word_is_printed_verbatim(word in "[^'\\r]{0,40}") {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let executed = runtime.block_on(run(&format!("printf '%s' '{word}'")));
        prop_assert_eq!(executed.stdout, word);
    }
}
