//! A container engine for tests: it answers the API as Podman 4.3.1 does, and runs the program of a
//! container as a process of this machine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;

/// The containers that were created and not removed.
type Containers = Arc<Mutex<HashMap<String, Value>>>;

/// Starts an engine that runs as long as the runtime. Returns its socket.
pub(crate) fn start() -> PathBuf {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let containers = Containers::default();
    tokio::spawn(async move {
        let _dir = dir;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&containers)));
        }
    });
    socket
}

async fn serve(stream: UnixStream, containers: Containers) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
    let method = method.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let parts: Vec<_> = path.split(['/', '?']).collect();
    let (status, answer) = match (method.as_str(), parts.as_slice()) {
        ("GET", ["", "info"]) => ("200 OK", json!({ "SecurityOptions": ["name=seccomp"] })),
        ("POST", ["", "containers", "create"]) => {
            let spec: Value = serde_json::from_slice(&body).unwrap();
            if spec["Image"] == "localhost/missing" {
                let message = "No such image: localhost/missing";
                ("404 Not Found", json!({ "message": message }))
            } else {
                let mut containers = containers.lock().unwrap();
                let id = format!("c{}", containers.len());
                containers.insert(id.clone(), spec);
                ("201 Created", json!({ "Id": id, "Warnings": [] }))
            }
        }
        ("POST", ["", "containers", id, "attach", _]) => {
            let spec = containers.lock().unwrap()[*id].clone();
            let head = "HTTP/1.1 101 UPGRADED\r\n\
                Content-Type: application/vnd.docker.raw-stream\r\n\
                Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            return run(stream, &spec).await;
        }
        ("POST", ["", "containers", _, "start"]) => ("204 No Content", Value::Null),
        ("DELETE", ["", "containers", id, _]) => {
            containers.lock().unwrap().remove(*id);
            ("204 No Content", Value::Null)
        }
        _ => ("400 Bad Request", json!({ "message": "unknown request" })),
    };
    let body = if answer.is_null() {
        String::new()
    } else {
        answer.to_string()
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    // The client may be gone.
    let _ = stream.write_all(&answer).await;
}

/// Runs the program of a container, with its streams on the connection.
async fn run(stream: BufReader<UnixStream>, spec: &Value) {
    let mounts = spec["HostConfig"]["Mounts"].as_array().unwrap();
    let entry = &spec["Entrypoint"][0];
    let program = mounts
        .iter()
        .find(|mount| mount["Target"] == *entry)
        .unwrap();
    let words = spec["Cmd"].as_array().unwrap();
    let mut child = Command::new(program["Source"].as_str().unwrap())
        .args(words.iter().map(|word| word.as_str().unwrap()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let input = async move {
        let _ = tokio::io::copy(&mut from_client, &mut stdin).await;
    };
    let output = async move {
        let mut chunk = vec![0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut chunk).await {
            let length = u32::try_from(count).unwrap().to_be_bytes();
            let header = [&[1, 0, 0, 0], &length[..]].concat();
            if to_client.write_all(&header).await.is_err()
                || to_client.write_all(&chunk[..count]).await.is_err()
            {
                return;
            }
        }
    };
    tokio::join!(input, output);
    child.wait().await.unwrap();
}
