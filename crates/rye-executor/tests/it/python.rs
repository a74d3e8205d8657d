//! Python loads only verified files and the standard library.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::TestEnv;
use rye_executor::Status;
use serde_json::json;

const FUNCTION: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
    def execute(params, project_path):\n    import helper\n    return {\"said\": helper.WORD}\n";
const SCRIPT: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
    import json, helper\nprint(json.dumps({\"said\": helper.WORD}))\n";

/// A package with a tool of each Python runtime and a helper that both import.
fn package() -> TestEnv {
    let env = TestEnv::new();
    env.signed("tools/pack/__init__.py", "");
    env.signed("tools/pack/helper.py", "WORD = \"signed\"\n");
    env.signed("tools/pack/function.py", FUNCTION);
    env.signed("tools/pack/script.py", SCRIPT);
    env.sign_dependencies("pack/function");
    env
}

/// Compiles a module to bytecode that Python does not compare with the source.
fn compile(text: &str, into: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("helper.py");
    fs::write(&source, text).unwrap();
    fs::create_dir_all(into.parent().unwrap()).unwrap();
    let code = "import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[2], \
        doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)";
    let status = Command::new("python3")
        .args(["-c", code])
        .args([source.as_path(), into])
        .status();
    assert!(status.unwrap().success());
}

/// File name of the cached bytecode of a module.
fn cached_name() -> String {
    let code = "import sys; print('helper.' + sys.implementation.cache_tag + '.pyc')";
    let output = Command::new("python3").args(["-c", code]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn bytecode_next_to_signed_sources_does_not_run() {
    let env = package();
    let planted = env
        .project_path("tools/pack/__pycache__")
        .join(cached_name());
    compile("WORD = \"planted\"\n", &planted);
    for tool in ["pack/function", "pack/script"] {
        // Twice, because the second call uses the compiled code.
        for _ in 0..2 {
            let result = env.run(tool, json!({})).await;
            assert_eq!(result.status, Status::Success, "{result:?}");
            assert_eq!(result.data, json!({"said": "signed"}), "{tool}");
        }
    }
}

#[tokio::test]
async fn modules_added_after_signing_are_refused() {
    for name in [
        "other.pyc",
        "helper.so",
        "config/__init__.py",
        "config/x.py",
    ] {
        let env = package();
        let path = env.project_path("tools/pack").join(name);
        if name == "other.pyc" {
            compile("WORD = \"planted\"\n", &path);
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "WORD = \"planted\"\n").unwrap();
        }
        for tool in ["pack/function", "pack/script"] {
            let error = env.fails(tool, json!({})).await;
            assert!(error.starts_with("content_changed: "), "{name}: {error}");
            assert!(error.contains(&format!("added {name}")), "{error}");
        }
    }
}

#[tokio::test]
async fn modules_in_the_project_do_not_shadow_the_standard_library() {
    let env = package();
    for module in ["json", "asyncio", "inspect", "helper"] {
        let path = env.project().join(format!("{module}.py"));
        fs::write(path, "raise SystemExit('planted')\n").unwrap();
    }
    for tool in ["pack/function", "pack/script"] {
        let result = env.run(tool, json!({})).await;
        assert_eq!(result.data, json!({"said": "signed"}), "{result:?}");
    }
}

#[tokio::test]
async fn files_next_to_a_tool_do_not_shadow_the_standard_library() {
    let env = TestEnv::new();
    for runtime in ["function", "script"] {
        let text = format!(
            "__executor_id__ = \"rye/core/runtimes/python/{runtime}\"\n\
             import glob, json\n\
             def execute(params, project_path):\n    return {{\"ran\": True}}\n\
             if __name__ == \"__main__\":\n    print(json.dumps({{\"ran\": True}}))\n"
        );
        env.signed(&format!("tools/{runtime}.py"), &text);
    }
    for module in [
        "json",
        "glob",
        "sitecustomize",
        "usercustomize",
        "runpy",
        "os",
    ] {
        env.write(
            &format!("tools/{module}.py"),
            "raise SystemExit('planted')\n",
        );
    }
    for tool in ["function", "script"] {
        let result = env.run(tool, json!({})).await;
        assert_eq!(result.data, json!({"ran": true}), "{result:?}");
    }
}

#[tokio::test]
async fn compiled_python_code_is_stored_privately() {
    let env = package();
    env.run("pack/function", json!({})).await;
    let private = env.cache().join("private");
    let mode = fs::metadata(&private).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(private.join("python").is_dir());
    assert!(!env.project_path("tools/pack/__pycache__").exists());
}

#[tokio::test]
async fn script_runs_as_the_main_module() {
    let env = TestEnv::new();
    env.signed(
        "tools/main.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         found = sorted(name for name in globals() if not name.startswith(\"__\"))\n\
         import json, sys\nfound = [name for name in found if name != \"found\"]\n\
         is_main = vars(sys.modules[\"__main__\"]) is globals()\n\
         print(json.dumps({\"names\": found, \"is_main\": is_main, \"file\": __file__ == sys.argv[0], \"name\": __name__}))\n",
    );
    let expected = json!({"names": [], "is_main": true, "file": true, "name": "__main__"});
    // Twice, because the second call uses the compiled code.
    for _ in 0..2 {
        let result = env.run("main", json!({})).await;
        assert_eq!(result.data, expected, "{result:?}");
    }
}

#[tokio::test]
async fn script_error_names_its_line() {
    let env = TestEnv::new();
    env.signed(
        "tools/wrong.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\n\nraise ValueError(\"so wrong\")\n",
    );
    for _ in 0..2 {
        let result = env.run("wrong", json!({})).await;
        let told = result.data["stderr"].as_str().unwrap();
        // One line further down, because of the signature line.
        assert!(told.contains("wrong.py\", line 4, in <module>"), "{told}");
        assert!(told.ends_with("ValueError: so wrong\n"), "{told}");
        assert_eq!(result.metadata["exit_code"], 1);
    }
}
