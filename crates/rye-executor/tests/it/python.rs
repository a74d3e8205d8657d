//! What Python loads beside a tool was verified, or is Python's own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::World;
use rye_executor::Status;
use serde_json::json;

const FUNCTION: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
    def execute(params, project_path):\n    import helper\n    return {\"said\": helper.WORD}\n";
const SCRIPT: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
    import json, helper\nprint(json.dumps({\"said\": helper.WORD}))\n";

/// A package with a tool of each Python runtime and a helper that both import.
fn package() -> World {
    let world = World::new();
    world.signed("tools/pack/__init__.py", "");
    world.signed("tools/pack/helper.py", "WORD = \"signed\"\n");
    world.signed("tools/pack/function.py", FUNCTION);
    world.signed("tools/pack/script.py", SCRIPT);
    world.sign_dependencies("pack/function");
    world
}

/// Compiles a text as if it were the source of a module, and marks the result
/// as one that Python must not compare with the source.
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

/// What Python names the cached bytecode of a module.
fn cached_name() -> String {
    let code = "import sys; print('helper.' + sys.implementation.cache_tag + '.pyc')";
    let output = Command::new("python3").args(["-c", code]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn bytecode_that_a_project_ships_beside_signed_sources_does_not_run() {
    let world = package();
    let planted = world.at("tools/pack/__pycache__").join(cached_name());
    compile("WORD = \"planted\"\n", &planted);
    for tool in ["pack/function", "pack/script"] {
        // Twice: the second call finds what the first compiled.
        for _ in 0..2 {
            let envelope = world.run(tool, json!({})).await;
            assert_eq!(envelope.status, Status::Success, "{envelope:?}");
            assert_eq!(envelope.data, json!({"said": "signed"}), "{tool}");
        }
    }
}

#[tokio::test]
async fn modules_that_were_added_after_signing_are_refused() {
    for name in [
        "other.pyc",
        "helper.so",
        "config/__init__.py",
        "config/x.py",
    ] {
        let world = package();
        let path = world.at("tools/pack").join(name);
        if name == "other.pyc" {
            compile("WORD = \"planted\"\n", &path);
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "WORD = \"planted\"\n").unwrap();
        }
        for tool in ["pack/function", "pack/script"] {
            let error = world.fails(tool, json!({})).await;
            assert!(error.starts_with("content_changed: "), "{name}: {error}");
            assert!(error.contains(&format!("added {name}")), "{error}");
        }
    }
}

#[tokio::test]
async fn modules_in_the_project_folder_do_not_take_the_place_of_pythons_own() {
    let world = package();
    for module in ["json", "asyncio", "inspect", "helper"] {
        let path = world.project().join(format!("{module}.py"));
        fs::write(path, "raise SystemExit('planted')\n").unwrap();
    }
    for tool in ["pack/function", "pack/script"] {
        let envelope = world.run(tool, json!({})).await;
        assert_eq!(envelope.data, json!({"said": "signed"}), "{envelope:?}");
    }
}

#[tokio::test]
async fn files_beside_a_tool_without_a_package_do_not_take_the_place_of_pythons_own() {
    let world = World::new();
    for runtime in ["function", "script"] {
        let text = format!(
            "__executor_id__ = \"rye/core/runtimes/python/{runtime}\"\n\
             import glob, json\n\
             def execute(params, project_path):\n    return {{\"ran\": True}}\n\
             if __name__ == \"__main__\":\n    print(json.dumps({{\"ran\": True}}))\n"
        );
        world.signed(&format!("tools/{runtime}.py"), &text);
    }
    for module in [
        "json",
        "glob",
        "sitecustomize",
        "usercustomize",
        "runpy",
        "os",
    ] {
        world.write(
            &format!("tools/{module}.py"),
            "raise SystemExit('planted')\n",
        );
    }
    for tool in ["function", "script"] {
        let envelope = world.run(tool, json!({})).await;
        assert_eq!(envelope.data, json!({"ran": true}), "{envelope:?}");
    }
}

#[tokio::test]
async fn what_python_compiles_is_kept_where_no_one_else_can_write() {
    let world = package();
    world.run("pack/function", json!({})).await;
    let private = world.cache().join("private");
    let mode = fs::metadata(&private).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(private.join("python").is_dir());
    assert!(!world.at("tools/pack/__pycache__").exists());
}

#[tokio::test]
async fn a_script_runs_as_the_main_module_with_names_of_its_own_alone() {
    let world = World::new();
    world.signed(
        "tools/main.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         found = sorted(name for name in globals() if not name.startswith(\"__\"))\n\
         import json, sys\nfound = [name for name in found if name != \"found\"]\n\
         is_main = vars(sys.modules[\"__main__\"]) is globals()\n\
         print(json.dumps({\"names\": found, \"is_main\": is_main, \"file\": __file__ == sys.argv[0], \"name\": __name__}))\n",
    );
    let expected = json!({"names": [], "is_main": true, "file": true, "name": "__main__"});
    // Twice: the second call finds what the first compiled.
    for _ in 0..2 {
        let envelope = world.run("main", json!({})).await;
        assert_eq!(envelope.data, expected, "{envelope:?}");
    }
}

#[tokio::test]
async fn an_error_in_a_script_names_its_line() {
    let world = World::new();
    world.signed(
        "tools/wrong.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\n\nraise ValueError(\"so wrong\")\n",
    );
    for _ in 0..2 {
        let envelope = world.run("wrong", json!({})).await;
        let told = envelope.data["stderr"].as_str().unwrap();
        // One line further down: the first is the signature.
        assert!(told.contains("wrong.py\", line 4, in <module>"), "{told}");
        assert!(told.ends_with("ValueError: so wrong\n"), "{told}");
        assert_eq!(envelope.metadata["exit_code"], 1);
    }
}
