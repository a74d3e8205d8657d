//! What a tool can load beside itself was signed together with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::World;
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
fn package() -> World {
    let world = unmarked();
    world.write("tools/pack/__init__.py", "");
    world.sign_dependencies("pack/function");
    world
}

/// The same without a marker, the helper not signed.
fn unmarked() -> World {
    let world = World::new();
    for runtime in ["function", "script"] {
        world.signed(&format!("tools/pack/{runtime}.py"), &tool(runtime));
    }
    world.write("tools/pack/helper.py", "WORD = \"signed\"\n");
    world
}

async fn runs(world: &World) {
    for tool in TOOLS {
        let envelope = world.run(tool, json!({})).await;
        assert_eq!(envelope.data, json!({"said": "signed"}), "{envelope:?}");
    }
}

/// Refused with the one command that signs it, and nothing runs.
async fn refused(world: &World, code: &str, part: &str) {
    for tool in TOOLS {
        let error = world.refused(tool, json!({})).await;
        assert_eq!(error.code, code, "{error:?}");
        assert!(error.message.contains(part), "{error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.ends_with(&format!("rye sign {tool}")), "{hint}");
    }
}

/// The import fails, and standard error says how to sign.
async fn not_loaded(world: &World) {
    for tool in TOOLS {
        let envelope = world.run(tool, json!({})).await;
        assert_eq!(envelope.status, Status::Error, "{envelope:?}");
        assert_eq!(envelope.metadata["exit_code"], 1, "{envelope:?}");
        let text = envelope.data["stderr"].as_str().unwrap();
        let hint = format!("rye sign --manifest {}", world.at("tools/pack").display());
        assert!(text.contains(&hint), "{text}");
    }
    assert!(!world.ran());
}

#[tokio::test]
async fn a_signed_package_runs() {
    runs(&package()).await;
}

#[tokio::test]
async fn removing_the_marker_does_not_switch_verification_off() {
    let world = package();
    runs(&world).await;
    fs::remove_file(world.at("tools/pack/__init__.py")).unwrap();
    world.write("tools/pack/helper.py", PLANTED);
    refused(&world, "content_changed", "missing __init__.py").await;
    refused(&world, "content_changed", "changed helper.py").await;
    // Without the manifest, too, the helper cannot be loaded.
    fs::remove_file(world.at("tools/pack/rye.manifest")).unwrap();
    not_loaded(&world).await;
}

#[tokio::test]
async fn removing_the_manifest_alone_is_refused() {
    let world = package();
    fs::remove_file(world.at("tools/pack/rye.manifest")).unwrap();
    refused(&world, "unsigned", "helper.py").await;
}

#[tokio::test]
async fn without_a_marker_nothing_is_loaded_until_the_directory_is_signed() {
    let world = unmarked();
    not_loaded(&world).await;
    world.write("tools/pack/helper.py", PLANTED);
    not_loaded(&world).await;
    world.write("tools/pack/helper.py", "WORD = \"signed\"\n");
    world.sign_directory("tools/pack");
    runs(&world).await;
    world.write("tools/pack/helper.py", PLANTED);
    refused(&world, "content_changed", "changed helper.py").await;
}

#[tokio::test]
async fn a_manifest_counts_only_for_its_own_directory_and_by_a_trusted_key() {
    let world = package();
    let (text, other) = (
        fs::read_to_string(world.at("tools/pack/rye.manifest")).unwrap(),
        world.at("tools/other"),
    );
    fs::create_dir_all(&other).unwrap();
    for entry in fs::read_dir(world.at("tools/pack")).unwrap().flatten() {
        fs::copy(entry.path(), other.join(entry.file_name())).unwrap();
    }
    let error = world.refused("other/function", json!({})).await;
    assert_eq!(error.code, "signed_for_another_file", "{error:?}");
    // The item itself signed there, with the manifest of the other directory.
    world.sign(&other.join("function.py"));
    let error = world.refused("other/function", json!({})).await;
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
        world.write("tools/pack/rye.manifest", &text.replace(from, to));
        refused(&world, code, "").await;
    }
    let stranger = lillux::keys::SigningKey::generate().unwrap();
    let library = world.executor.library().unwrap();
    let found = library.find(&"pack/function".parse().unwrap()).unwrap();
    let scopes = rye_executor::dependency_scopes(&library, &found, world.project());
    let scope = &scopes.unwrap()[0];
    library
        .sign_manifest(found.root, scope, &stranger, None)
        .unwrap();
    let error = world.refused("pack/function", json!({})).await;
    assert_eq!(error.code, "untrusted_key", "{error:?}");
}

/// A name, what the refusal says of it, and how it is made.
type Plant<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));

#[tokio::test]
async fn whatever_is_added_to_a_signed_directory_is_refused() {
    let fifo = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let file = |path: &Path| fs::write(path, PLANTED).unwrap();
    let plant: [Plant; 8] = [
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
    for (name, part, make) in plant {
        let world = package();
        let path = world.at("tools/pack").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        refused(&world, "content_changed", part).await;
    }
}

#[tokio::test]
async fn a_file_that_becomes_something_else_is_refused() {
    let world = package();
    let helper = world.at("tools/pack/helper.py");
    fs::remove_file(&helper).unwrap();
    refused(&world, "content_changed", "missing helper.py").await;
    fs::create_dir(&helper).unwrap();
    refused(&world, "content_changed", "missing helper.py").await;
    fs::remove_dir(&helper).unwrap();
    symlink("function.py", &helper).unwrap();
    refused(&world, "content_changed", "changed helper.py").await;
    fs::remove_file(&helper).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&helper)
            .status()
            .unwrap()
            .success()
    );
    refused(&world, "content_changed", "not a regular file: helper.py").await;
}

#[tokio::test]
async fn directories_that_are_passed_over_cannot_be_loaded_from() {
    for folder in ["__pycache__", "node_modules", ".venv", ".git"] {
        let world = package();
        world.signed(
            "tools/pack/function.py",
            &format!(
                "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport importlib\n\
                 def execute(params, project_path):\n    \
                 return importlib.import_module(\"{folder}.planted\").WORD\n"
            ),
        );
        world.sign_dependencies("pack/function");
        world.write(&format!("tools/pack/{folder}/planted.py"), PLANTED);
        let envelope = world.run("pack/function", json!({})).await;
        assert_eq!(envelope.status, Status::Error, "{folder}: {envelope:?}");
        assert!(!world.ran(), "{folder}");
    }
}

#[tokio::test]
async fn two_versions_of_equal_length_signed_at_once_run_as_signed() {
    let world = package();
    for round in 0..6 {
        let word = if round % 2 == 0 { "signed" } else { "second" };
        let path = world.at("tools/pack/helper.py");
        fs::write(&path, format!("WORD = \"{word}\"\n")).unwrap();
        // The times of the file say nothing.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        world.sign_dependencies("pack/function");
        for tool in TOOLS {
            let envelope = world.run(tool, json!({})).await;
            assert_eq!(envelope.data, json!({"said": word}), "{envelope:?}");
        }
    }
}

/// The private copies that were made of the package.
fn copies(world: &World) -> Vec<PathBuf> {
    let all = fs::read_dir(world.cache().join("materialised")).unwrap();
    let all = all.flatten().map(|entry| entry.path().join("pack"));
    all.filter(|path| path.is_dir()).collect()
}

#[tokio::test]
async fn a_private_copy_that_was_changed_is_made_anew() {
    let world = package();
    runs(&world).await;
    let copies = copies(&world);
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
    runs(&world).await;
    assert!(!world.ran());
    assert!(!copy.join("json.py").exists());
}

#[tokio::test]
async fn development_mode_loads_what_is_there_with_a_warning() {
    let world = package();
    world.write("tools/pack/helper.py", "WORD = \"edited\"\n");
    let world = world.in_dev_mode();
    let envelope = world.run("pack/function", json!({})).await;
    assert_eq!(envelope.data, json!({"said": "edited"}), "{envelope:?}");
    assert_eq!(crate::support::warnings(&envelope).len(), 1, "{envelope:?}");
    let envelope = world.run("pack/function", json!({})).await;
    assert_eq!(envelope.data, json!({"said": "edited"}), "{envelope:?}");
}

/// A real environment of Python in the project, with a module in it.
fn with_environment(world: &World) -> PathBuf {
    let path = world.project().join(".venv");
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
async fn an_environment_is_loaded_from_only_if_it_is_signed_and_unchanged() {
    let world = World::new();
    let packages = with_environment(&world);
    world.signed("tools/it.py", WITH_PACKAGE);
    let hook = "import os; open(os.environ['PWD'] + '/ran', 'w')\n";
    fs::write(packages.join("x.pth"), hook).unwrap();
    fs::write(packages.join("sitecustomize.py"), "open('ran', 'w')\n").unwrap();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.status, Status::Error, "{envelope:?}");
    assert_eq!(crate::support::warnings(&envelope).len(), 1, "{envelope:?}");

    // Signed, its modules are found; its start-up hooks never run.
    world.sign_environment(&world.project().join(".venv"));
    let envelope = world.run("it", json!({})).await;
    let prefix = world.project().join(".venv");
    assert_eq!(
        envelope.data,
        json!({"said": "installed", "prefix": prefix}),
        "{envelope:?}"
    );
    assert!(!world.ran());

    // Python itself writes bytecode there when it runs without us.
    let python = world.project().join(".venv/bin/python");
    let wrote = Command::new(&python)
        .args(["-c", "import installed"])
        .status();
    assert!(wrote.unwrap().success());
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["said"], "installed", "{envelope:?}");

    fs::write(packages.join("y.pth"), hook).unwrap();
    fs::write(packages.join("installed.py"), "WORD = \"tampered!\"\n").unwrap();
    let error = world.refused_at_last("it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    for part in ["y.pth", "installed.py"] {
        assert!(error.message.contains(part), "{error:?}");
    }
}

#[tokio::test]
async fn development_mode_uses_an_unsigned_environment_for_a_person_only() {
    let world = World::new();
    with_environment(&world);
    world.signed("tools/it.py", WITH_PACKAGE);
    let world = world.in_dev_mode();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["said"], "installed", "{envelope:?}");
    assert!(
        !crate::support::warnings(&envelope).is_empty(),
        "{envelope:?}"
    );
    let mut request = rye_executor::Request::new("it".parse().unwrap());
    request.approval = rye_executor::Approval::None;
    let envelope = world.executor.execute(request).await;
    assert_eq!(envelope.status, Status::Error, "{envelope:?}");
}

#[tokio::test]
async fn two_versions_of_an_environment_of_equal_length_run_as_signed() {
    let world = World::new();
    let packages = with_environment(&world);
    world.signed("tools/it.py", WITH_PACKAGE);
    for word in ["first1", "second", "third3"] {
        let path = packages.join("installed.py");
        fs::write(&path, format!("WORD = \"{word}\"\n")).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        world.sign_environment(&world.project().join(".venv"));
        let envelope = world.run("it", json!({})).await;
        assert_eq!(envelope.data["said"], word, "{envelope:?}");
    }
}

/// The same size and times, so that bytecode which is judged by them would be used again.
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
    let world = World::new();
    let path = with_environment(&world).join("installed.py");
    fs::write(&path, "WORD = \"good\"\n").unwrap();
    world.signed("tools/it.py", SWAPS_A_PACKAGE);
    world.sign_environment(&world.project().join(".venv"));
    for (swap, said) in [(true, "evil"), (false, "good")] {
        let envelope = world.run("it", json!({ "path": path, "swap": swap })).await;
        assert_eq!(envelope.data["said"], said, "{envelope:?}");
    }
}

#[tokio::test]
async fn an_environment_whose_links_lead_into_the_project_is_not_signed() {
    let world = World::new();
    let packages = with_environment(&world);
    fs::create_dir(world.project().join("src")).unwrap();
    symlink(world.project().join("src"), packages.join("own")).unwrap();
    let library = world.executor.library().unwrap();
    let environment = world.project().join(".venv");
    let error = library.sign_environment(&environment, world.key());
    assert!(matches!(
        error,
        Err(rye_items::SignError::Unlistable { .. })
    ));
}

#[tokio::test]
async fn variables_do_not_add_directories_of_the_project_to_the_path() {
    let world = package();
    let source = world.project().join("src");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("extra.py"), PLANTED).unwrap();
    world.signed(
        "tools/pack/function.py",
        &tool("function").replace("json, helper", "helper, extra"),
    );
    world.sign_dependencies("pack/function");
    let path = format!("{}:src:.", source.display());
    let envelope = world
        .run_with("pack/function", &[("PYTHONPATH", &path)])
        .await;
    assert_eq!(envelope.status, Status::Error, "{envelope:?}");
    assert!(!world.ran());
    assert!(
        !crate::support::warnings(&envelope).is_empty(),
        "{envelope:?}"
    );
    // Signed, it may be used.
    world.sign_environment(&source);
    world
        .run_with("pack/function", &[("PYTHONPATH", &path)])
        .await;
    assert!(world.ran());
}

#[tokio::test]
async fn the_library_of_a_projects_runtime_is_signed_with_the_runtime() {
    let world = World::new();
    world.signed(
        "tools/rt/py.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         anchor: {lib: lib, env_paths: {PYTHONPATH: {prepend: [\"{runtime_lib}\"]}}}\n\
         config: {command: python3, args: [\"{tool_path}\"]}\n",
    );
    world.signed(
        "tools/it.py",
        "__executor_id__ = \"rt/py\"\nimport support\nprint(support.WORD)\n",
    );
    world.write("tools/rt/lib/support.py", "WORD = 7\n");
    let error = world.refused("it", json!({})).await;
    assert_eq!(error.code, "unsigned", "{error:?}");
    assert!(error.hint.unwrap().ends_with("rye sign rt/py"));
    world.sign_dependencies("rt/py");
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data, json!(7), "{envelope:?}");
    world.write("tools/rt/lib/support.py", PLANTED);
    let error = world.refused("it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
}

#[tokio::test]
async fn a_runtime_without_verify_deps_loads_nothing_that_is_not_signed() {
    for more in [
        "",
        "verify_deps: {enabled: false}\n",
        "verify_deps: {scope: tool_file}\n",
    ] {
        let world = World::new();
        world.signed(
            "tools/rt.yaml",
            &format!(
                "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n{more}\
                 anchor: {{markers_any: [mark], env_paths: {{PYTHONPATH: {{prepend: [\"{{anchor_path}}\", \"{{tool_dir}}\", \"{{project_path}}/.ai/tools/pack\"]}}}}}}\n\
                 config: {{command: python3, args: [\"{{tool_path}}\"]}}\n"
            ),
        );
        world.signed(
            "tools/pack/it.py",
            "__executor_id__ = \"rt\"\nimport helper\n",
        );
        world.write("tools/pack/helper.py", PLANTED);
        let envelope = world.run("pack/it", json!({})).await;
        assert_eq!(envelope.status, Status::Error, "{more}: {envelope:?}");
        assert!(!world.ran(), "{more}");
        world.write("tools/pack/mark", "");
        let envelope = world.run("pack/it", json!({})).await;
        assert_eq!(envelope.status, Status::Error, "{more}: {envelope:?}");
        assert!(!world.ran(), "{more}");
    }
}

#[tokio::test]
async fn neighbour_in_another_encoding_is_not_signed() {
    let world = package();
    let hidden = "# coding: utf-7\nWORD = \"signed\"\n# harmless +AAo-WORD+AD0AIg-planted+ACI-\n";
    world.write("tools/pack/helper.py", hidden);
    let library = world.executor.library().unwrap();
    let found = library.find(&"pack/function".parse().unwrap()).unwrap();
    let scopes = rye_executor::dependency_scopes(&library, &found, world.project()).unwrap();
    for scope in &scopes {
        let signed = library.sign_manifest(found.root, scope, world.key(), None);
        assert!(
            matches!(signed, Err(rye_items::SignError::Item(_))),
            "{signed:?}"
        );
    }
    assert!(!scopes.is_empty());
    refused(&world, "content_changed", "changed helper.py").await;
}
