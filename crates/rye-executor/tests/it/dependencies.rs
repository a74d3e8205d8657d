//! Dependencies: a tool loads only files that are signed with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{TestEnv, hint_command};
use rye_executor::Status;
use serde_json::json;

const PLANTED: &str = "open('ran', 'w')\nWORD = \"planted\"\n";

fn tool(runtime: &str) -> String {
    format!(
        "__executor_id__ = \"rye/core/runtimes/python/{runtime}\"\nimport json, helper\n\
         def execute(params, project_path):\n    return {{\"said\": helper.WORD}}\n\
         if __name__ == \"__main__\":\n    print(json.dumps({{\"said\": helper.WORD}}))\n"
    )
}

const TOOLS: [&str; 2] = ["pack/function", "pack/script"];

/// Two tools that import a helper, signed as a package.
fn package() -> TestEnv {
    let env = unmarked();
    env.write("tools/pack/__init__.py", "");
    env.sign_dependencies("pack/function");
    env
}

/// The same without a marker and with an unsigned helper.
fn unmarked() -> TestEnv {
    let env = TestEnv::new();
    for runtime in ["function", "script"] {
        env.signed(&format!("tools/pack/{runtime}.py"), &tool(runtime));
    }
    env.write("tools/pack/helper.py", "WORD = \"signed\"\n");
    env
}

async fn runs(env: &TestEnv) {
    for tool in TOOLS {
        let result = env.run(tool, json!({})).await;
        assert_eq!(result.data, json!({"said": "signed"}), "{result:?}");
    }
}

/// Asserts that the call is refused with the command that signs the directory.
async fn refused(env: &TestEnv, code: &str, part: &str) {
    for tool in TOOLS {
        let error = env.refused(tool, json!({})).await;
        assert_eq!(error.code, code, "{error:?}");
        assert!(error.message.contains(part), "{error:?}");
        assert_eq!(hint_command(&error), format!("rye sign {tool}"));
    }
}

/// Asserts that the import fails and standard error contains the sign command.
async fn not_loaded(env: &TestEnv) {
    for tool in TOOLS {
        let result = env.run(tool, json!({})).await;
        assert_eq!(result.status, Status::Error, "{result:?}");
        assert_eq!(result.metadata["exit_code"], 1, "{result:?}");
        let text = result.data["stderr"].as_str().unwrap();
        let hint = format!(
            "rye sign --manifest {}",
            env.project_path("tools/pack").display()
        );
        assert!(text.contains(&hint), "{text}");
    }
    assert!(!env.ran());
}

#[tokio::test]
async fn signed_package_runs() {
    runs(&package()).await;
}

#[tokio::test]
async fn lib_of_the_anchor_can_be_imported_and_is_verified() {
    let env = TestEnv::new();
    for runtime in ["function", "script"] {
        let text = tool(runtime);
        env.signed(&format!("tools/pack/deep/{runtime}.py"), &text);
    }
    env.write("tools/pack/lib/helper.py", "WORD = \"signed\"\n");
    let run = async |runtime: &str| env.run(&format!("pack/deep/{runtime}"), json!({})).await;
    // Without a marker, the tool loads only itself.
    assert_eq!(run("function").await.status, Status::Error);
    env.write("tools/pack/__init__.py", "");
    env.sign_dependencies("pack/deep/function");
    for runtime in ["function", "script"] {
        let result = run(runtime).await;
        assert_eq!(result.data, json!({"said": "signed"}), "{result:?}");
    }
    for (file, text) in [("helper.py", PLANTED), ("json.py", PLANTED)] {
        env.write(&format!("tools/pack/lib/{file}"), text);
        for runtime in ["function", "script"] {
            let tool = format!("pack/deep/{runtime}");
            let error = env.refused(&tool, json!({})).await;
            assert_eq!(error.code, "content_changed", "{error:?}");
            assert!(error.message.contains(&format!("lib/{file}")), "{error:?}");
        }
    }
}

#[tokio::test]
async fn everything_unsigned_is_listed_with_one_command() {
    let env = TestEnv::new();
    env.write(
        "tools/rt/rt.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         anchor: {markers_any: [package.json], lib: lib}\nverify_deps: {exclude_dirs: [node_modules]}\n\
         config: {command: cat, args: [\"{tool_path}\"]}\n",
    );
    env.write("tools/rt/lib/a.txt", "a");
    env.write(
        "tools/pack/it.sh",
        "# executor_id: rt/rt\n# version: \"1.0.0\"\n",
    );
    env.write("tools/pack/package.json", "{}");
    env.write("tools/pack/node_modules/x/index.js", "");
    let error = env.refused("pack/it", json!({})).await;
    assert_eq!(error.code, "unsigned", "{error:?}");
    for part in ["pack/it", "rt/rt", "package.json", "a.txt"] {
        assert!(error.message.contains(part), "{part}: {error:?}");
    }
    let modules = env.project_path("tools/pack/node_modules");
    assert_eq!(
        hint_command(&error),
        format!("rye sign pack/it rt/rt --manifest {}", modules.display())
    );
}

#[tokio::test]
async fn removing_the_marker_does_not_disable_verification() {
    let env = package();
    runs(&env).await;
    fs::remove_file(env.project_path("tools/pack/__init__.py")).unwrap();
    env.write("tools/pack/helper.py", PLANTED);
    refused(&env, "content_changed", "missing __init__.py").await;
    refused(&env, "content_changed", "changed helper.py").await;
    // Without the manifest, the helper cannot be loaded either.
    fs::remove_file(env.project_path("tools/pack/rye.manifest")).unwrap();
    not_loaded(&env).await;
}

#[tokio::test]
async fn removing_only_the_manifest_is_refused() {
    let env = package();
    fs::remove_file(env.project_path("tools/pack/rye.manifest")).unwrap();
    refused(&env, "unsigned", "helper.py").await;
}

#[tokio::test]
async fn unmarked_directory_is_not_loaded_until_it_is_signed() {
    let env = unmarked();
    not_loaded(&env).await;
    env.write("tools/pack/helper.py", PLANTED);
    not_loaded(&env).await;
    env.write("tools/pack/helper.py", "WORD = \"signed\"\n");
    env.sign_directory("tools/pack");
    runs(&env).await;
    env.write("tools/pack/helper.py", PLANTED);
    refused(&env, "content_changed", "changed helper.py").await;
}

#[tokio::test]
async fn manifest_is_valid_only_for_its_directory_and_a_trusted_key() {
    let env = package();
    let (text, other) = (
        fs::read_to_string(env.project_path("tools/pack/rye.manifest")).unwrap(),
        env.project_path("tools/other"),
    );
    fs::create_dir_all(&other).unwrap();
    for entry in fs::read_dir(env.project_path("tools/pack"))
        .unwrap()
        .flatten()
    {
        fs::copy(entry.path(), other.join(entry.file_name())).unwrap();
    }
    let error = env.refused("other/function", json!({})).await;
    assert_eq!(error.code, "signed_for_another_file", "{error:?}");
    // A signed item with the manifest of another directory.
    env.sign(&other.join("function.py"));
    let error = env.refused("other/function", json!({})).await;
    assert_eq!(error.code, "malformed_signature", "{error:?}");
    for (from, to, code) in [
        ("helper.py", "helped.py", "bad_signature"),
        (
            "rye-manifest:v1:dependencies",
            "rye-manifest:v1:environment",
            "bad_signature",
        ),
        ("rye-manifest:v1", "rye-manifest:v0", "malformed_signature"),
    ] {
        env.write("tools/pack/rye.manifest", &text.replace(from, to));
        refused(&env, code, "").await;
    }
    let stranger = lillux::keys::SigningKey::generate().unwrap();
    let library = env.executor.library().unwrap();
    let found = library.find(&"pack/function".parse().unwrap()).unwrap();
    let scopes = rye_executor::dependency_scopes(&library, &found, env.project());
    let scope = &scopes.unwrap()[0];
    library
        .sign_manifest(found.root, scope, &stranger, None)
        .unwrap();
    let error = env.refused("pack/function", json!({})).await;
    assert_eq!(error.code, "untrusted_key", "{error:?}");
}

/// Name, expected part of the message, and how to create it.
type FileCase<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));

#[tokio::test]
async fn additions_to_a_signed_directory_are_refused() {
    let fifo = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let file = |path: &Path| fs::write(path, PLANTED).unwrap();
    let cases: [FileCase; 8] = [
        ("helper", "added helper", &file),
        (".hidden", "added .hidden", &file),
        ("helper.so", "added helper.so", &file),
        ("deep/module.py", "added deep/module.py", &file),
        ("pipe.py", "not a regular file: pipe.py", &fifo),
        ("line\nbreak.py", "unreadable line", &file),
        ("link.py", "added link.py", &|path| {
            symlink("helper.py", path).unwrap();
        }),
        ("out.py", "link out of the directory: out.py", &|path| {
            symlink("/etc/passwd", path).unwrap();
        }),
    ];
    for (name, part, make) in cases {
        let env = package();
        let path = env.project_path("tools/pack").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        refused(&env, "content_changed", part).await;
    }
}

#[tokio::test]
async fn file_of_a_different_type_is_refused() {
    let env = package();
    let helper = env.project_path("tools/pack/helper.py");
    fs::remove_file(&helper).unwrap();
    refused(&env, "content_changed", "missing helper.py").await;
    fs::create_dir(&helper).unwrap();
    refused(&env, "content_changed", "missing helper.py").await;
    fs::remove_dir(&helper).unwrap();
    symlink("function.py", &helper).unwrap();
    refused(&env, "content_changed", "changed helper.py").await;
    fs::remove_file(&helper).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&helper)
            .status()
            .unwrap()
            .success()
    );
    refused(&env, "content_changed", "not a regular file: helper.py").await;
}

#[tokio::test]
async fn excluded_directories_cannot_be_loaded() {
    for folder in ["__pycache__", "node_modules", ".venv", ".git"] {
        let env = package();
        env.signed(
            "tools/pack/function.py",
            &format!(
                "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport importlib\n\
                 def execute(params, project_path):\n    \
                 return importlib.import_module(\"{folder}.planted\").WORD\n"
            ),
        );
        env.sign_dependencies("pack/function");
        env.write(&format!("tools/pack/{folder}/planted.py"), PLANTED);
        let result = env.run("pack/function", json!({})).await;
        assert_eq!(result.status, Status::Error, "{folder}: {result:?}");
        assert!(!env.ran(), "{folder}");
    }
}

#[tokio::test]
async fn versions_of_equal_length_run_as_signed() {
    let env = package();
    for round in 0..6 {
        let word = if round % 2 == 0 { "signed" } else { "second" };
        let path = env.project_path("tools/pack/helper.py");
        fs::write(&path, format!("WORD = \"{word}\"\n")).unwrap();
        // Modification times do not matter.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        env.sign_dependencies("pack/function");
        for tool in TOOLS {
            let result = env.run(tool, json!({})).await;
            assert_eq!(result.data, json!({"said": word}), "{result:?}");
        }
    }
}

/// Private copies of the package.
fn copies(env: &TestEnv) -> Vec<PathBuf> {
    let all = fs::read_dir(env.cache().join("materialised")).unwrap();
    let all = all.flatten().map(|entry| entry.path().join("pack"));
    all.filter(|path| path.is_dir()).collect()
}

#[tokio::test]
async fn modified_private_copy_is_replaced() {
    let env = package();
    runs(&env).await;
    let copies = copies(&env);
    assert_eq!(copies.len(), 1, "{copies:?}");
    let copy = &copies[0];
    assert_eq!(
        fs::metadata(copy).unwrap().permissions().mode() & 0o777,
        0o500
    );
    fs::set_permissions(copy, fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(copy.join("helper.py")).unwrap();
    fs::write(copy.join("helper.py"), PLANTED).unwrap();
    fs::write(copy.join("json.py"), PLANTED).unwrap();
    runs(&env).await;
    assert!(!env.ran());
    assert!(!copy.join("json.py").exists());
}

#[tokio::test]
async fn development_mode_loads_unsigned_files_with_a_warning() {
    let env = package();
    env.write("tools/pack/helper.py", "WORD = \"edited\"\n");
    let env = env.in_dev_mode();
    let result = env.run("pack/function", json!({})).await;
    assert_eq!(result.data, json!({"said": "edited"}), "{result:?}");
    assert_eq!(crate::support::warnings(&result).len(), 1, "{result:?}");
    let result = env.run("pack/function", json!({})).await;
    assert_eq!(result.data, json!({"said": "edited"}), "{result:?}");
}

/// Creates a real Python environment with a module in the project.
fn with_environment(env: &TestEnv) -> PathBuf {
    let path = env.project().join(".venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let lib = fs::read_dir(path.join("lib")).unwrap().flatten().next();
    let packages = lib.unwrap().path().join("site-packages");
    fs::write(packages.join("installed.py"), "WORD = \"installed\"\n").unwrap();
    packages
}

const WITH_PACKAGE: &str = "__executor_id__ = \"rye/core/runtimes/python/function\"\n\
    def execute(params, project_path):\n    import installed, sys\n    \
    return {\"said\": installed.WORD, \"prefix\": sys.prefix}\n";

#[tokio::test]
async fn environment_is_used_only_if_signed_and_unchanged() {
    let env = TestEnv::new();
    let packages = with_environment(&env);
    env.signed("tools/it.py", WITH_PACKAGE);
    let hook = "import os; open(os.environ['PWD'] + '/ran', 'w')\n";
    fs::write(packages.join("x.pth"), hook).unwrap();
    fs::write(packages.join("sitecustomize.py"), "open('ran', 'w')\n").unwrap();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Error, "{result:?}");
    assert_eq!(crate::support::warnings(&result).len(), 1, "{result:?}");

    // Once signed, its modules are found, but its start-up hooks never run.
    env.sign_environment(&env.project().join(".venv"));
    let result = env.run("it", json!({})).await;
    let prefix = env.project().join(".venv");
    assert_eq!(
        result.data,
        json!({"said": "installed", "prefix": prefix}),
        "{result:?}"
    );
    assert!(!env.ran());

    // Python writes bytecode there when it runs outside of Rye.
    let python = env.project().join(".venv/bin/python");
    let elsewhere = tempfile::tempdir().unwrap();
    let wrote = Command::new(&python)
        .args(["-c", "import installed"])
        .current_dir(elsewhere.path())
        .env("PWD", elsewhere.path())
        .status();
    assert!(wrote.unwrap().success());
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["said"], "installed", "{result:?}");

    fs::write(packages.join("y.pth"), hook).unwrap();
    fs::write(packages.join("installed.py"), "WORD = \"tampered!\"\n").unwrap();
    let error = env.refused_by_call("it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    for part in ["y.pth", "installed.py"] {
        assert!(error.message.contains(part), "{error:?}");
    }
}

#[tokio::test]
async fn development_mode_uses_unsigned_environments_only_for_users() {
    let env = TestEnv::new();
    with_environment(&env);
    env.signed("tools/it.py", WITH_PACKAGE);
    let env = env.in_dev_mode();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["said"], "installed", "{result:?}");
    assert!(!crate::support::warnings(&result).is_empty(), "{result:?}");
    let mut request = rye_executor::Request::new("it".parse().unwrap());
    request.approval = rye_executor::Approval::None;
    let result = env.executor.execute(request).await;
    assert_eq!(result.status, Status::Error, "{result:?}");
}

#[tokio::test]
async fn environment_versions_of_equal_length_run_as_signed() {
    let env = TestEnv::new();
    let packages = with_environment(&env);
    env.signed("tools/it.py", WITH_PACKAGE);
    for word in ["first1", "second", "third3"] {
        let path = packages.join("installed.py");
        fs::write(&path, format!("WORD = \"{word}\"\n")).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        env.sign_environment(&env.project().join(".venv"));
        let result = env.run("it", json!({})).await;
        assert_eq!(result.data["said"], word, "{result:?}");
    }
}

/// Keeps size and times, so that Python would reuse stale bytecode.
const SWAPS_A_PACKAGE: &str = r#"__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"
import os

def execute(params, project_path):
    path = params["path"]
    about = os.stat(path)
    def put(word):
        with open(path, "w") as file:
            file.write("WORD = \"%s\"\n" % word)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    if params["swap"]:
        put("evil")
    import installed
    put("good")
    return {"said": installed.WORD}
"#;

#[tokio::test]
async fn change_of_an_environment_during_a_call_does_not_outlive_it() {
    let env = TestEnv::new();
    let path = with_environment(&env).join("installed.py");
    fs::write(&path, "WORD = \"good\"\n").unwrap();
    env.signed("tools/it.py", SWAPS_A_PACKAGE);
    env.sign_environment(&env.project().join(".venv"));
    for (swap, said) in [(true, "evil"), (false, "good")] {
        let result = env.run("it", json!({ "path": path, "swap": swap })).await;
        assert_eq!(result.data["said"], said, "{result:?}");
    }
}

#[tokio::test]
async fn environment_with_links_into_the_project_cannot_be_signed() {
    let env = TestEnv::new();
    let packages = with_environment(&env);
    fs::create_dir(env.project().join("src")).unwrap();
    symlink(env.project().join("src"), packages.join("own")).unwrap();
    let library = env.executor.library().unwrap();
    let environment = env.project().join(".venv");
    let error = library.sign_environment(&environment, env.key());
    assert!(matches!(
        error,
        Err(rye_items::SignError::Unlistable { .. })
    ));
}

#[tokio::test]
async fn env_paths_do_not_add_unsigned_project_directories() {
    let env = package();
    let source = env.project().join("src");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("extra.py"), PLANTED).unwrap();
    env.signed(
        "tools/pack/function.py",
        &tool("function").replace("json, helper", "helper, extra"),
    );
    env.sign_dependencies("pack/function");
    let path = format!("{}:src:.", source.display());
    let result = env
        .run_with("pack/function", &[("PYTHONPATH", &path)])
        .await;
    assert_eq!(result.status, Status::Error, "{result:?}");
    assert!(!env.ran());
    assert!(!crate::support::warnings(&result).is_empty(), "{result:?}");
    // Once signed, it may be used.
    env.sign_environment(&source);
    env.run_with("pack/function", &[("PYTHONPATH", &path)])
        .await;
    assert!(env.ran());
}

#[tokio::test]
async fn runtime_library_is_signed_with_the_runtime() {
    let env = TestEnv::new();
    env.signed(
        "tools/rt/py.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         anchor: {lib: lib, env_paths: {PYTHONPATH: {prepend: [\"{runtime_lib}\"]}}}\n\
         config: {command: python3, args: [\"{tool_path}\"]}\n",
    );
    env.signed(
        "tools/it.py",
        "__executor_id__ = \"rt/py\"\nimport support\nprint(support.WORD)\n",
    );
    env.write("tools/rt/lib/support.py", "WORD = 7\n");
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "unsigned", "{error:?}");
    assert_eq!(hint_command(&error), "rye sign rt/py");
    env.sign_dependencies("rt/py");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data, json!(7), "{result:?}");
    env.write("tools/rt/lib/support.py", PLANTED);
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
}

#[tokio::test]
async fn runtime_without_verify_deps_loads_only_signed_files() {
    for more in [
        "",
        "verify_deps: {enabled: false}\n",
        "verify_deps: {scope: tool_file}\n",
    ] {
        let env = TestEnv::new();
        env.signed(
            "tools/rt.yaml",
            &format!(
                "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n{more}\
                 anchor: {{markers_any: [mark], env_paths: {{PYTHONPATH: {{prepend: [\"{{anchor_path}}\", \"{{tool_dir}}\", \"{{project_path}}/.ai/tools/pack\"]}}}}}}\n\
                 config: {{command: python3, args: [\"{{tool_path}}\"]}}\n"
            ),
        );
        env.signed(
            "tools/pack/it.py",
            "__executor_id__ = \"rt\"\nimport helper\n",
        );
        env.write("tools/pack/helper.py", PLANTED);
        let result = env.run("pack/it", json!({})).await;
        assert_eq!(result.status, Status::Error, "{more}: {result:?}");
        assert!(!env.ran(), "{more}");
        env.write("tools/pack/mark", "");
        let result = env.run("pack/it", json!({})).await;
        assert_eq!(result.status, Status::Error, "{more}: {result:?}");
        assert!(!env.ran(), "{more}");
    }
}

#[tokio::test]
async fn neighbour_in_another_encoding_is_not_signed() {
    let env = package();
    let hidden = "# coding: utf-7\nWORD = \"signed\"\n# harmless +AAo-WORD+AD0AIg-planted+ACI-\n";
    env.write("tools/pack/helper.py", hidden);
    let library = env.executor.library().unwrap();
    let found = library.find(&"pack/function".parse().unwrap()).unwrap();
    let scopes = rye_executor::dependency_scopes(&library, &found, env.project()).unwrap();
    for scope in &scopes {
        let signed = library.sign_manifest(found.root, scope, env.key(), None);
        assert!(
            matches!(signed, Err(rye_items::SignError::Item(_))),
            "{signed:?}"
        );
    }
    assert!(!scopes.is_empty());
    refused(&env, "content_changed", "changed helper.py").await;
}
