//! Where interpreters and anchors are searched, and how the trace shows it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::TestEnv;
use rye_executor::environment::Origin;
use rye_executor::interpreter::CandidateResult;
use rye_executor::{Request, Trace, TraceStepKind};
use serde_json::json;

fn program(path: &Path, output: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\necho {output}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A runtime in Python, as in the executor overview.
fn runtime(interpreter: &str) -> String {
    format!(
        "__version__ = \"1.0.0\"\n__tool_type__ = \"runtime\"\n__executor_id__ = \"subprocess\"\n\
         __category__ = \"runtimes\"\nENV_CONFIG = {{\"interpreter\": {interpreter}}}\n\
         CONFIG = {{\"command\": \"${{RYE_IT}}\", \"args\": [], \"timeout\": 300}}\n"
    )
}

#[tokio::test]
async fn search_of_a_resolver_names_the_spaces_in_order() {
    let env = TestEnv::new();
    env.signed(
        "tools/binary_runtime.py",
        &runtime(
            "{\"type\": \"binary\", \"search\": [\"project\", \"user\", \"system\"], \
             \"var\": \"RYE_IT\", \"fallback\": \"frobnicate\"}",
        ),
    );
    env.signed(
        "tools/venv_runtime.py",
        &runtime(
            "{\"type\": \"venv_python\", \"search\": [\"project\", \"user\", \"system\"], \
             \"var\": \"RYE_IT\", \"fallback\": \"python3\"}",
        ),
    );
    env.signed("tools/it.sh", "# executor_id: binary_runtime\n");
    env.signed("tools/py.sh", "# executor_id: venv_runtime\n");
    let user = env.user();
    let user_bin = user.join(".ai/bin");
    program(&user_bin.join("frobnicate"), "user");
    env.sign_environment(&user_bin);
    let output = |result: rye_executor::ExecutionResult| result.data["stdout"].clone();
    assert_eq!(output(env.run("it", json!({})).await), "user\n");
    let bin = env.project().join("bin");
    program(&bin.join("only_here"), "project");
    env.signed(
        "tools/only_runtime.py",
        &runtime(
            "{\"type\": \"binary\", \"search\": [\"project\", \"system\"], \
             \"var\": \"RYE_IT\", \"fallback\": \"only_here\"}",
        ),
    );
    env.signed("tools/only.sh", "# executor_id: only_runtime\n");
    let error = env.run("only", json!({})).await.error.unwrap();
    assert_eq!(error.code, "interpreter_not_found", "{error:?}");
    assert_eq!(
        error.hint,
        Some(format!("rye sign --manifest {}", bin.display())),
        "the directory of the program, not the project"
    );
    program(&bin.join("frobnicate"), "project");
    assert_eq!(
        output(env.run("it", json!({})).await),
        "user\n",
        "not signed"
    );
    env.sign_environment(&bin);
    assert_eq!(output(env.run("it", json!({})).await), "project\n");
    let venv = env.project().join(".venv");
    program(&venv.join("bin/python"), "venv");
    env.sign_environment(&venv);
    assert_eq!(output(env.run("py", json!({})).await), "venv\n");
}

#[tokio::test]
async fn trace_shows_the_candidates_and_the_search_for_the_anchor() {
    let env = TestEnv::new();
    env.write("tools/pack/__init__.py", "");
    env.signed(
        "tools/pack/deep/it.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\n\
         def execute(params, project_path):\n    return {}\n",
    );
    env.sign_directory("tools/pack");
    program(&env.project().join(".venv/bin/python"), "unsigned");
    let mut trace = Trace::enabled();
    let request = Request::new("pack/deep/it".parse().unwrap());
    env.executor.try_execute(request, &mut trace).await.unwrap();
    let kinds: Vec<_> = trace.steps().iter().map(|step| &step.kind).collect();
    let anchor = kinds.iter().find_map(|kind| match kind {
        TraceStepKind::Anchor {
            path,
            marker,
            searched,
            ..
        } => Some((path, marker, searched)),
        _ => None,
    });
    let (path, marker, searched) = anchor.unwrap();
    let [deep, pack] = ["tools/pack/deep", "tools/pack"].map(|dir| env.project_path(dir));
    assert_eq!(*path, pack.display().to_string());
    assert_eq!(marker.as_deref(), Some("__init__.py"));
    assert_eq!(*searched, [deep, pack].map(|dir| dir.display().to_string()));
    let interpreter = kinds.iter().find_map(|kind| match kind {
        TraceStepKind::Interpreter {
            variable,
            found,
            tried,
            ..
        } => Some((variable, found, tried)),
        _ => None,
    });
    let (variable, found, tried) = interpreter.unwrap();
    assert_eq!(variable, "RYE_PYTHON");
    assert_eq!(tried[0].result, CandidateResult::NotSigned, "{tried:?}");
    assert_eq!(tried[1].result, CandidateResult::Missing, "{tried:?}");
    let last = tried.last().unwrap();
    assert_eq!(last.result, CandidateResult::Found);
    assert_eq!(found.as_ref(), Some(&last.name));
}

#[tokio::test]
async fn trace_of_a_failed_search_shows_the_candidates() {
    let env = TestEnv::new();
    env.signed(
        "tools/rt.py",
        &runtime("{\"type\": \"system_binary\", \"binary\": \"frobnicate\", \"var\": \"RYE_IT\"}"),
    );
    env.signed("tools/it.sh", "# executor_id: rt\n");
    let mut trace = Trace::enabled();
    let request = Request::new("it".parse().unwrap());
    let error = env
        .executor
        .try_execute(request, &mut trace)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "interpreter_not_found");
    let is_search = |kind: &TraceStepKind| matches!(kind, TraceStepKind::Interpreter { found: None, tried, .. } if !tried.is_empty());
    assert!(trace.steps().iter().any(|step| is_search(&step.kind)));
}

#[tokio::test]
async fn dry_run_does_not_show_the_resolving_command_as_the_interpreter() {
    let env = TestEnv::new();
    let interpreter =
        "{\"type\": \"command\", \"resolve_cmd\": [\"which\", \"sh\"], \"var\": \"RYE_IT\"}";
    env.signed("tools/rt.py", &runtime(interpreter));
    env.signed("tools/it.sh", "# executor_id: rt\n");
    for dry_run in [true, false] {
        let mut request = Request::new("it".parse().unwrap());
        request.dry_run = dry_run;
        let mut trace = Trace::enabled();
        env.executor.try_execute(request, &mut trace).await.unwrap();
        let steps = trace.steps().iter();
        let found = steps.clone().find_map(|step| match &step.kind {
            TraceStepKind::Interpreter { found, tried, .. } => Some((found, tried)),
            _ => None,
        });
        let (found, tried) = found.unwrap();
        let origin = steps.clone().find_map(|step| match &step.kind {
            TraceStepKind::Environment { variables } => Some(variables["RYE_IT"].from.clone()),
            _ => None,
        });
        let results: Vec<_> = tried.iter().map(|candidate| candidate.result).collect();
        if dry_run {
            assert_eq!(*found, None);
            assert_eq!(results, [CandidateResult::NotRun]);
            assert_eq!(origin, Some(Origin::InterpreterCommand("rt".into())));
        } else {
            assert!(found.is_some());
            assert_eq!(origin, Some(Origin::Interpreter("rt".into())));
        }
    }
}
