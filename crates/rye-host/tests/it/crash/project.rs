//! A project with signed tools, an MCP server and a command that record their effects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::durable::IfExists;
use lillux::envelope::Secret;
use lillux::keys::{PublicKey, SigningKey};
use lillux::process::Supervisor;
use rye_engine::audit;
use rye_engine::protocol::{Gate, GateStatus, SessionId};
use rye_engine::{Builder, Engine};
use rye_executor::Roots;
use rye_host::{Credentials, HttpRefresher};
use rye_items::vault::Vault;
use rye_items::{Library, Options, PathItem, SYSTEM, Space, UserKeys};

use super::tools::LOG;

/// The credential that the command needs.
pub(crate) const SECRET: &str = "SESAME";

const SERVER: &str = r#"
import json, os, sys
TOOL = {"name": "rain", "description": "Makes it rain", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    else:
        with open("LOG", "a") as log:
            log.write("rain\n")
            log.flush()
            os.fsync(log.fileno())
        result = {"content": [{"type": "text", "text": "ok"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

fn user(dir: &Path) -> PathBuf {
    dir.join("user")
}

fn project(dir: &Path) -> PathBuf {
    dir.join("project")
}

fn vault(dir: &Path) -> Vault {
    Vault::new(&user(dir), Some(&project(dir)))
}

/// Creates the project and a signing key.
pub(crate) fn create(dir: &Path) {
    let key = UserKeys::new(&user(dir))
        .generate("Ada", IfExists::Fail)
        .unwrap();
    let log = dir.join(LOG);
    let log = log.display();
    let trace = format!("echo deploy >> {log}; sync {log}; echo ok");
    let deploy = format!(
        "version: \"1.0.0\"\ndescription: Ships it\nrisk_level: high\n\
         executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: '{trace}'\n"
    );
    let server = dir.join("server.py");
    let program = SERVER.replace("LOG", &log.to_string());
    fs::write(&server, program).unwrap();
    let weather = format!(
        "version: \"1.0.0\"\ntool_type: mcp_server\ncategory: mcp/servers\ndescription: Weather\n\
         config:\n  command: python3\n  args: ['{}']\n",
        server.display()
    );
    write_signed(dir, &key, "tools/deploy.yaml", &deploy);
    write_signed(dir, &key, "tools/mcp/servers/weather.yaml", &weather);
    let commands = user(dir).join(".ai/config/agent/commands.yaml");
    fs::create_dir_all(commands.parent().unwrap()).unwrap();
    let text = format!(
        "commands:\n  open: {{ description: opens, run: 'test -n \"$WORD\" && echo open >> {log} && echo ok', \
         risk: low, credentials: {{ WORD: {SECRET} }} }}\n"
    );
    fs::write(commands, text).unwrap();
}

fn write_signed(dir: &Path, key: &SigningKey, relative: &str, text: &str) {
    let path = project(dir).join(".ai").join(relative);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let (project, user) = (project(dir), user(dir));
    let library = Library::open(&Options {
        project: Some(&project),
        user: Some(&user),
        ..Options::new(&SYSTEM)
    })
    .unwrap();
    let PathItem::Items(items) = library.items_at_path(&path).unwrap().0 else {
        panic!("{} is not an item", path.display());
    };
    for found in items {
        library.sign(&found, key, None).unwrap();
    }
}

/// Adds the tools of the project and the key to an engine.
pub(crate) fn connect(builder: Builder, dir: &Path, supervisor: Arc<Supervisor>) -> Builder {
    let roots = Roots {
        user: Some(user(dir)),
        ..Roots::new(project(dir), dir.join("cache"))
    };
    let key = || UserKeys::new(&user(dir)).load_signing_key().unwrap();
    let (signer, offered) = (Some(Arc::new(key())), rye_host::OfferedServers::default());
    let bridge = rye_host::meta_tools(roots, supervisor, signer, dir, offered).unwrap();
    assert!(bridge.ignored.is_empty(), "{:?}", bridge.ignored);
    let credentials = Credentials::new(&dir.join("sessions.db"), Some(vault(dir)));
    builder
        .tools(bridge.tools)
        .credentials(Arc::new(credentials))
        .refresher(HttpRefresher)
        .sign_with(key())
}

/// Stores the requested secret in the vault.
pub(crate) fn store_secret(dir: &Path) {
    let secret = Secret::new(b"open sesame".to_vec());
    let name = SECRET.parse().unwrap();
    vault(dir).set(Space::User, &name, &secret).unwrap();
}

/// Verifies the session, and returns the numbers of findings and receipts.
pub(crate) async fn verify(engine: &Engine, session: &SessionId, dir: &Path) -> String {
    let key = UserKeys::new(&user(dir)).load_signing_key().unwrap();
    let public: PublicKey = key.public().clone();
    let archive = engine.export(session).await.unwrap().remove(0);
    let verdict = audit::check(&archive, |name| {
        (public.fingerprint().to_string() == name).then(|| public.clone())
    });
    let resolved = |gate: &&Gate| matches!(gate.status, GateStatus::Resolved { .. });
    let decisions = archive.gates.iter().filter(resolved).count();
    assert_eq!(verdict.receipts, decisions, "a decision has no receipt");
    format!("proof: {} faults", verdict.findings.len())
}
