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

/// Scripts and their output, which real `bash` must print as well.
const LANGUAGE: &[(&str, &str)] = &[
    // Loops.
    (
        "for i in a b 'c d'; do echo \"<$i>\"; done",
        "<a>\n<b>\n<c d>\n",
    ),
    ("for i in 1 2 3\ndo\n  echo $i\ndone | wc -l", "3\n"),
    ("for i in; do echo $i; done; echo $?", "0\n"),
    ("touch b a; for f in *; do echo $f; done", "a\nb\n"),
    (
        "for i in {1..3} {a,b}x {03..1} {5..1..2}; do printf '%s ' $i; done",
        "1 2 3 ax bx 03 02 01 5 3 1 ",
    ),
    (
        "echo a{b,c{d,e}}f {x} {} a{,b} {a..c} '{a,b}' \"{a,b}\"",
        "abf acdf acef {x} {} a ab a b c {a,b} {a,b}\n",
    ),
    (
        "X=1; while [ $X -lt 4 ]; do echo $X; X=$((X + 1)); done",
        "1\n2\n3\n",
    ),
    (
        "X=3; until [ $X = 0 ]; do X=$((X-1)); printf $X; done",
        "210",
    ),
    (
        "for ((i = 0; i < 6; i += 2)); do printf \"$i \"; done; echo $i",
        "0 2 4 6\n",
    ),
    (
        "for i in 1 2 3 4; do if [ $i = 2 ]; then continue; fi; \
         if [ $i = 4 ]; then break; fi; echo $i; done",
        "1\n3\n",
    ),
    (
        "for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done",
        "1a\n2a\n",
    ),
    (
        "for i in 1 2; do while true; do break 2; done; done; echo $i",
        "1\n",
    ),
    (
        "printf 'a b\\nc d\\n' | while read x y; do echo \"$y $x\"; done",
        "b a\nd c\n",
    ),
    (
        "printf ' a  b \\n' | { read x; echo \"<$x>\"; }",
        "<a  b>\n",
    ),
    (
        "printf ' a \\n' | while IFS= read -r x; do echo \"<$x>\"; done",
        "< a >\n",
    ),
    (
        "printf 'a:b:c d\\n' | { IFS=: read x y; echo \"$x,$y\"; }",
        "a,b:c d\n",
    ),
    (
        "printf '1\\n2\\n3\\n' > f; while read x; do S=$((S + x)); done < f; echo $S",
        "6\n",
    ),
    (
        "printf 'a\\nb' | while read x; do echo $x; done; echo -",
        "a\n-\n",
    ),
    ("read x; read y || echo \"$x.\"", "from outside.\n"),
    // Conditions.
    ("if true; then echo a; fi", "a\n"),
    (
        "if false; then echo a; elif true; then echo b; else echo c; fi",
        "b\n",
    ),
    ("if false\nthen echo a\nelse\n echo c\nfi", "c\n"),
    ("if false; then echo a; fi; echo $?", "0\n"),
    (
        "if ! false && true; then echo a; fi; ! true; echo $?",
        "a\n1\n",
    ),
    (
        "for x in a.txt b.md c 7; do case $x in *.txt | *.md) echo text ;; \
         [0-9]) echo digit;; *) echo other; esac; done",
        "text\ntext\nother\ndigit\n",
    ),
    (
        "case 'a*b' in 'a*b') echo same;; esac; case axb in 'a*b') echo no;; (a*b) echo yes;; esac",
        "same\nyes\n",
    ),
    (
        "case x in [!a-w]) echo a;; esac; \
         case b in [[:digit:]]) echo d;; [[:alpha:]]) echo l;; esac",
        "a\nl\n",
    ),
    ("case x in y) ;; esac; echo $?", "0\n"),
    ("((3 > 2)) && echo yes; ((0)) || echo no", "yes\nno\n"),
    // Functions.
    (
        "f() { echo \"$# $1 $2\"; return 3; }; f a 'b c'; echo $?",
        "2 a b c\n3\n",
    ),
    (
        "function g { printf '<%s>' \"$@\"; printf '(%s)' \"$*\" $*; }; g 'a b' c",
        "<a b><c>(a b c)(a)(b)(c)",
    ),
    (
        "f() { local x=1; y=2; g; }; g() { echo $x$y; }; x=0; f; echo $x$y",
        "12\n02\n",
    ),
    (
        "fact() { if [ $1 -le 1 ]; then echo 1; else \
         echo $(($1 * $(fact $(($1 - 1))))); fi; }; fact 6",
        "720\n",
    ),
    (
        "f() { shift; echo \"$1\"; for a; do printf \"$a,\"; done; }; f 1 2 3",
        "2\n2,3,",
    ),
    (
        "f() { cat; } ; echo x | f; f <<< y; f() (exit 4); f; echo $?",
        "x\ny\n4\n",
    ),
    (
        "f() { echo out; echo err >&2; } > log 2>&1; f; cat log",
        "out\nerr\n",
    ),
    (
        "f() { echo \"${1-none}${1+set}\"; }; f; f ''; f a",
        "none\nset\naset\n",
    ),
    (
        "set -- a 'b c'; echo $# $2; printf '<%s>' x\"$@\"y",
        "2 b c\n<xa><b cy>",
    ),
    (
        "f() { echo $#; }; f \"$@\"; f \"$*\"; f '' \"\"",
        "0\n1\n2\n",
    ),
    // Groups and pipelines.
    (
        "{ echo a; echo b; } | wc -l; { echo c; } > f; cat f",
        "2\nc\n",
    ),
    (
        "(X=1; mkdir d; cd d; echo $X); echo \"$X.\"; [ -d d ] && echo made",
        "1\n.\nmade\n",
    ),
    (
        "(exit 3); echo $?; (echo a; exit 1) || echo failed",
        "3\na\nfailed\n",
    ),
    (
        "for i in c a b; do echo $i; done | sort > f; cat f",
        "a\nb\nc\n",
    ),
    ("ls missing |& wc -l", "1\n"),
    (
        "if true; then echo a; fi > f; echo b >> f; wc -l < f",
        "2\n",
    ),
    ("echo a | { read x; echo $x$x; } | cat", "aa\n"),
    (
        "true | false | true; echo $?; set -o pipefail; true | false | true; echo $?",
        "0\n1\n",
    ),
    // Here-documents.
    (
        "X=1; cat << END\na $X $(echo b) \\$X \"q\" 'r' $((1+1))\n  END\nEND\necho c",
        "a 1 b $X \"q\" 'r' 2\n  END\nc\n",
    ),
    ("cat << 'END'\na $X `b`\nEND", "a $X `b`\n"),
    ("cat <<- END | sort\n\tb\n\t\ta\n\tEND", "a\nb\n"),
    ("cat << A; cat << B\n1\nA\n2\nB", "1\n2\n"),
    (
        "while read x; do echo \"<$x>\"; done << END\na\nb\nEND",
        "<a>\n<b>\n",
    ),
    (
        "X=$(cat << END\na\nEND\n); echo $X; cat <<< \"$X b\"",
        "a\na b\n",
    ),
    // Substitutions.
    ("echo $(echo a; echo b) \"$(echo a; echo b)\"", "a b a\nb\n"),
    (
        "echo \"<$(printf 'a\\n\\n\\n')>\" `echo c` `echo \\`echo d\\``",
        "<a> c d\n",
    ),
    (
        "X=$(false); echo $?; X=$(echo a) || echo no; echo $X$(echo b)",
        "1\nab\n",
    ),
    ("echo $(echo $(echo \"$(echo 'a  b')\"))", "a b\n"),
    ("X=1; Y=$(X=2; echo $X); echo $X$Y", "12\n"),
    ("for i in $(seq 3); do printf $i; done", "123"),
    (
        "echo $(for i in a b; do echo $i; done; case x in x) echo y;; esac)",
        "a b y\n",
    ),
    // Parameters.
    (
        "unset X; echo ${X:-a b} ${X-c} ${X:=d} $X ${X:+e} ${Y+f}.",
        "a b c d d e .\n",
    ),
    ("X=; echo ${X:-a} ${X-b}. ${X:+c}.", "a . .\n"),
    ("printf '<%s>' ${X:-'a b' c} \"${X:-a b}\"", "<a b><c><a b>"),
    (
        "X=/a/b.tar.gz; echo ${X##*/} ${X#*/} ${X%.*} ${X%%.*} ${#X}",
        "b.tar.gz a/b.tar.gz /a/b.tar /a/b 11\n",
    ),
    (
        "X=a.b.c; echo ${X/./-} ${X//./-} ${X//[ac]/x} ${X/z/y} ${X//.}",
        "a-b.c a-b-c x.b.x a.b.c abc\n",
    ),
    (
        "X=hello; echo ${X:1:3} ${X:3} ${X: -2} ${X:0:-1} ${X^} ${X^^}; Y=ABC; echo ${Y,,} ${Y,}",
        "ell lo lo hell Hello HELLO\nabc aBC\n",
    ),
    ("X='a*'; Y='a*b'; echo ${Y#$X} ${Y#\"$X\"}", "*b b\n"),
    (
        "IFS=,; X=a,b,,c; printf '<%s>' $X; echo; X=' x , y '; printf '<%s>' $X",
        "<a><b><><c>\n< x >< y >",
    ),
    (
        "X='  a  b  '; printf '<%s>' $X x$X\"\"y",
        "<a><b><x><a><b><y>",
    ),
    ("X=a; X+=b; echo $X ${X}c \"${X}\"'c'", "ab abc abc\n"),
    ("X=5 Y=6; echo $X$Y; X=7 true; echo $X", "56\n5\n"),
    (
        "echo \"a\\\"b\\$c\\d\" 'e\\f' g\\h \\$i",
        "a\"b$c\\d e\\f gh $i\n",
    ),
    (
        "touch a1 a2 b1; echo [ab]1 [!b]? [c]*",
        "a1 b1 a1 a2 [c]*\n",
    ),
    // Arithmetic.
    (
        "echo $((1 + 2 * 3 - 4 / 2 % 3)) $(((1 + 2) * 3)) $((2 ** 10)) $((-7 / 2)) $((7 % -3))",
        "5 9 1024 -3 1\n",
    ),
    (
        "echo $((1 < 2)) $((2 <= 1)) $((1 == 1 && 0 || 1)) $((!3)) $((~0)) \
         $((5 & 3 | 8 ^ 1)) $((1 << 4 >> 2))",
        "1 0 1 0 -1 9 4\n",
    ),
    (
        "X=3; echo $((X++ + ++X)) $X $((X -= 2, X *= 5)) $((X > 9 ? 1 : 2)) $((0x1f + 010)) $((Y))",
        "8 5 15 1 39 0\n",
    ),
    (
        "X=0; echo $((1 || (X = 5))) $((0 && (X = 6))) $X; ((X++)); ((X += 4)); echo $X",
        "1 0 0\n5\n",
    ),
    (
        "A='1 + 2'; B=A; echo $((B * 2)) $(( $(echo 4) + ${#A} ))",
        "6 9\n",
    ),
    (
        "echo $((9223372036854775807 + 1)) $((-9223372036854775807 - 1))",
        "-9223372036854775808 -9223372036854775808\n",
    ),
    // Options.
    (
        "set -e; false || true; if false; then :; fi; ! true; echo a; false; echo b",
        "a\n",
    ),
    ("set -eu; f() { false; echo no; }; echo a; f; echo b", "a\n"),
    ("set -e; X=$(false); echo b", ""),
    ("set -u; echo ${X:-a}; echo $X; echo b", "a\n"),
    ("echo ${X:?missing}; echo b", ""),
    (
        "(echo ${X:?missing}; echo a); echo b; echo $(echo $((1 / 0))) c",
        "b\nc\n",
    ),
    ("# comment\necho a # more\necho b#c '#d'", "a\nb#c #d\n"),
    ("echo a\\\nb; echo \"c\\\nd\"", "ab\ncd\n"),
    ("exit; echo a", ""),
    (
        "cd ~ && [ \"$PWD\" = ~ ] && echo home; echo \"~\" a~",
        "home\n~ a~\n",
    ),
];

#[tokio::test]
async fn language_works() {
    for (script, stdout) in LANGUAGE {
        let executed = run(script).await;
        assert_eq!(executed.stdout, *stdout, "{script}\n{executed:?}");
        assert!(!executed.timed_out && !executed.truncated, "{script}");
    }
}

/// Checks the expected output, if `bash` is installed.
#[test]
fn bash_prints_the_same() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    for (script, stdout) in LANGUAGE {
        let dir = tempfile::tempdir().unwrap();
        let bash = Command::new("bash")
            .args(["-c", script])
            .current_dir(dir.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", dir.path().canonicalize().unwrap())
            .env("NAME", "Ada L")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut bash) = bash else { return };
        // A script that reads nothing may have ended already.
        let _ = bash.stdin.take().unwrap().write_all(b"from outside\n");
        let output = bash.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), *stdout, "{script}");
    }
}

#[tokio::test]
async fn unsupported_scripts_are_rejected_before_running() {
    let cases = [
        ("echo a > f; echo 'open", "unterminated `'`"),
        ("echo \"open", "unterminated `\"`"),
        ("echo a |", "unexpected end of the script"),
        ("| echo a", "unexpected `|`"),
        ("echo a &&", "unexpected end of the script"),
        ("&& echo a", "`&` is not supported"),
        ("echo a ;; echo b", "unexpected `;`"),
        ("; echo a", "unexpected `;`"),
        ("echo a &", "there are no background jobs"),
        ("echo a >", "expected a file name"),
        ("cat << END", "does not end with `END`"),
        ("cat << END\na", "does not end with `END`"),
        ("echo ${X!}", "this form is not supported"),
        ("echo ${X", "this form is not supported"),
        ("echo ${X[1]}", "this form is not supported"),
        ("echo ${!X}", "expected a name"),
        ("X=(a b)", "arrays are not supported"),
        ("(echo a", "expected `)`"),
        ("echo a)", "unexpected `)`"),
        ("echo (a)", "expected `)`"),
        ("if true; then echo a", "expected `fi` after `if`"),
        ("if true; echo a; fi", "expected `then` after `if`"),
        ("if true; then fi", "expected a command after `then`"),
        ("echo a\nfor i in a; do\necho $i", "line 3: expected `done`"),
        ("for 1 in a; do :; done", "expected a variable name"),
        ("while true; echo a; done", "expected `do` after `while`"),
        ("done", "unexpected `done`"),
        ("case a in b echo;; esac", "expected `)`"),
        ("case a in b) echo", "expected `;;`"),
        ("{ echo a; ", "expected `}`"),
        ("f() echo a", "expected `{` after `f()`"),
        ("[[ a = b ]]", "use `[ … ]` or `case`"),
        ("echo $((1 + 2)", "expected `))`"),
        ("echo $(echo a", "expected `)`"),
        ("echo `echo a", "unterminated backtick"),
        ("echo $'a'", "is not supported"),
        ("cat <(echo a)", "`<(` is not supported"),
        ("echo a >&3", "expected 1 or 2"),
        ("echo a 3> f", "stream 3"),
        ("select x in a; do :; done", "there is no terminal"),
    ];
    for (script, message) in cases {
        let executed = run(script).await;
        assert_eq!(executed.exit_code, Some(2), "{script}\n{executed:?}");
        assert_eq!(executed.stdout, "", "{script}");
        assert!(executed.stderr.contains(message), "{script}\n{executed:?}");
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
        ("while true; do :; done", 137),
        ("until false; do true | true; done", 137),
        ("for ((;;)); do echo a; done", 137),
        ("while true; do echo a; done | head -n 1", 137),
        ("f() { f; }; f", 137),
        ("f() { f | f; }; f", 137),
        ("f() { echo $(f); }; f", 137),
        ("f() { if echo \"${A:-$(f)}\"; then :; fi | cat; }; f", 137),
        ("X=a; while true; do X=$X$X; done", 137),
        ("X=a; while true; do X+=$X; done", 137),
        ("echo {1..100000}", 137),
        ("echo {1..200}{1..200}", 137),
        (
            "X=$(seq 1 100000); while true; do case $X in *b) ;; esac; done",
            137,
        ),
        ("while true; do (:); done", 137),
        ("echo $((X = 1 / 0)); echo a", 1),
        ("X='X + 1'; echo $((X))", 1),
        ("while read x; do :; done < missing", 1),
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

#[tokio::test]
async fn deeply_nested_scripts_are_rejected() {
    let nested = |open: &str, close: &str| {
        let count = 60_000 / (open.len() + close.len());
        format!("{}:{}", open.repeat(count), close.repeat(count))
    };
    for (open, close) in [
        ("(", ")"),
        ("(", ""),
        ("((", "))"),
        ("{ ", "; }"),
        ("if ", "; then :; fi"),
        ("if true; then ", "; fi"),
        ("while ", "; do :; done"),
        ("for i in a; do ", "; done"),
        ("case a in a) ", ";; esac"),
        ("f() { ", "; }"),
        ("f()", ""),
        ("function f ", ""),
        ("echo $(", ")"),
        ("echo \"$(", ")\""),
        ("echo ${a:-", "}"),
        ("echo ${a:-\"", "\"}"),
        ("echo $((", "))"),
        ("echo $((1 + (", ")))"),
    ] {
        let executed = run(&nested(open, close)).await;
        assert_ne!(executed.exit_code, Some(0), "{open}");
        assert!(!executed.timed_out, "{open}");
    }
    for part in ["`", "``", "$", "\"", "''", "{", "[", "! ", "((1))&&", "a()"] {
        let executed = run(&part.repeat(60_000 / part.len())).await;
        assert!(!executed.timed_out, "{part}");
    }
    // Checked when the script runs.
    let expression = format!("echo $(({}1{}))", "(".repeat(30), ")".repeat(30));
    assert_eq!(run(&expression).await.stdout, "1\n");
    let braces = format!("echo {}a{}", "{b,".repeat(5000), "}".repeat(5000));
    assert!(!run(&braces).await.timed_out);
    let signs = format!("X='{}1'; echo $((X))", "-".repeat(30_000));
    assert_eq!(run(&signs).await.exit_code, Some(1));
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
            "if",
            "then",
            "else",
            "fi",
            "for",
            "in",
            "while",
            "do",
            "done",
            "case",
            "esac",
            ";;",
            "f()",
            "f",
            "{",
            "}",
            "(",
            ")",
            "$(",
            "$((",
            "))",
            "`",
            "${A:-",
            "${A##",
            "}",
            "<<E",
            "\nE\n",
            "{a,b}",
            "[a-",
            "read",
            "break",
            "return",
            "true",
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
