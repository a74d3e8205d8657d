//! Forwards the output of a running tool to the client as progress and log messages.

use std::time::Duration;

use lillux::process::Stream;
use rmcp::RoleServer;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RequestContext};
use rye_executor::OutputListener;
use rye_items::ItemRef;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum number of queued chunks. Further chunks are only in the result.
const QUEUE_LEN: usize = 256;

/// Minimum interval between progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum length of a forwarded line, in characters.
const MAX_LINE: usize = 500;

/// Forwards the output of one call.
pub(super) struct OutputRelay {
    item: String,
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
    /// The client wants log messages.
    wants_log: bool,
    chunks: (mpsc::Sender<OutputChunk>, mpsc::Receiver<OutputChunk>),
}

struct OutputChunk {
    stream: Stream,
    bytes: Vec<u8>,
}

impl OutputRelay {
    /// `None` if the client wants neither progress nor log messages.
    pub(super) fn new(
        item: &ItemRef,
        level: Option<LoggingLevel>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Self> {
        let progress = context.meta.get_progress_token();
        let wants_log = matches!(level, Some(LoggingLevel::Debug | LoggingLevel::Info));
        (progress.is_some() || wants_log).then(|| Self {
            item: item.id.to_string(),
            peer: context.peer.clone(),
            progress,
            wants_log,
            chunks: mpsc::channel(QUEUE_LEN),
        })
    }

    /// The listener to pass to the executor.
    pub(super) fn listener(&self) -> OutputListener {
        let chunks = self.chunks.0.clone();
        OutputListener::new(move |stream, bytes| {
            let bytes = bytes.to_vec();
            let _ = chunks.try_send(OutputChunk { stream, bytes });
        })
    }

    /// Runs `work` and forwards output until it is done.
    pub(super) async fn forward_during<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut state = Progress::default();
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    while let Ok(chunk) = self.chunks.1.try_recv() {
                        self.forward(chunk, &mut state).await;
                    }
                    return done;
                }
                Some(chunk) = self.chunks.1.recv() => self.forward(chunk, &mut state).await,
            }
        }
    }

    async fn forward(&self, chunk: OutputChunk, state: &mut Progress) {
        let lines = state.lines(&chunk);
        if self.wants_log && chunk.stream == Stream::Stderr {
            for line in &lines {
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line))
                    .with_logger(&self.item);
                // Ignore errors: the service notices when the client disconnects.
                let _ = self.peer.notify_logging_message(message).await;
            }
        }
        let is_time = state
            .last
            .is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL);
        if let (Some(token), true) = (&self.progress, is_time) {
            state.last = Some(Instant::now());
            #[expect(clippy::cast_precision_loss, reason = "progress only has to increase")]
            let progress = ProgressNotificationParam::new(token.clone(), state.bytes as f64);
            let progress = match lines.last() {
                Some(line) => progress.with_message(line.clone()),
                None => progress,
            };
            let _ = self.peer.notify_progress(progress).await;
        }
    }
}

/// Progress so far.
#[derive(Default)]
struct Progress {
    bytes: u64,
    last: Option<Instant>,
}

impl Progress {
    /// Counts a chunk and returns its non-blank lines, truncated.
    fn lines(&mut self, chunk: &OutputChunk) -> Vec<String> {
        self.bytes += chunk.bytes.len() as u64;
        let text = String::from_utf8_lossy(&chunk.bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| line.chars().take(MAX_LINE).collect())
            .collect()
    }
}
