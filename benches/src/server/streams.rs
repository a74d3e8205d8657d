//! Event streams: how late events arrive, and what idle streams cost.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Server;
use super::client::Client;

/// Sessions that stream at the same time.
const SESSIONS: usize = 100;
/// Turns of each.
const TURNS: usize = 5;
/// Idle streams.
pub(super) const IDLE: u32 = 5000;
/// Streams that are opened at the same time.
const OPENING: usize = 64;

/// The 99th percentile of the time from the commit of an event until a client has its frame, in
/// seconds.
pub(super) fn latency(server: &Server, client: &mut Client) -> Result<f64> {
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|_| Server::create_session(client))
        .collect::<Result<_>>()?;
    let runtime = runtime()?;
    let mut all = runtime.block_on(async {
        let mut readers = JoinSet::new();
        for session in &sessions {
            let stream = open(server, session).await?;
            readers.spawn(read(stream));
        }
        for _ in 0..TURNS {
            for session in &sessions {
                let path = format!("/api/sessions/{session}/threads/default/prompts");
                client.post(&path, r#"{"text":"go"}"#, 202)?;
            }
        }
        let mut all = Vec::new();
        while let Some(read) = readers.join_next().await {
            all.extend(read??);
        }
        anyhow::Ok(all)
    })?;
    all.sort_by(f64::total_cmp);
    let index = all.len() * 99 / 100;
    let latency = all.get(index).context("no events")?;
    Ok(*latency)
}

/// Reads a stream until the turns have ended, and returns the latencies of its stored events.
async fn read(mut stream: BufReader<TcpStream>) -> Result<Vec<f64>> {
    let (mut latencies, mut ended) = (Vec::new(), 0);
    let mut line = String::new();
    while ended < TURNS {
        line.clear();
        ensure!(stream.read_line(&mut line).await? > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data:") {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            let event: Value = serde_json::from_str(data)?;
            let is_stored = event["sequence"].is_u64();
            if let Some(at) = event["at"].as_u64().filter(|_| is_stored) {
                let latency = now.saturating_sub(Duration::from_millis(at));
                latencies.push(latency.as_secs_f64());
            }
            ended += usize::from(event["type"] == "turn_end");
        }
    }
    Ok(latencies)
}

/// Growth of the server's memory by many idle streams, in bytes.
pub(super) fn idle_memory(server: &Server, session: &str) -> Result<f64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let before = server.resident()?;
        let opening = Arc::new(Semaphore::new(OPENING));
        let mut open_streams = JoinSet::new();
        for _ in 0..IDLE {
            let permit = Arc::clone(&opening).acquire_owned().await?;
            let (address, request) = (server.address, request(server, session));
            open_streams.spawn(async move {
                let stream = connect(address, &request).await;
                drop(permit);
                stream
            });
        }
        let mut streams = Vec::new();
        while let Some(stream) = open_streams.join_next().await {
            streams.push(stream??);
        }
        Ok(server.resident()? - before)
    })
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

async fn open(server: &Server, session: &str) -> Result<BufReader<TcpStream>> {
    connect(server.address, &request(server, session)).await
}

fn request(server: &Server, session: &str) -> String {
    format!(
        "GET /api/sessions/{session}/events HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {}\r\n\r\n",
        server.token
    )
}

/// Opens a stream and reads its first event.
async fn connect(address: std::net::SocketAddr, request: &str) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(1024, stream);
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        ensure!(stream.read_line(&mut line).await? > 0, "no stream");
    }
    Ok(stream)
}
