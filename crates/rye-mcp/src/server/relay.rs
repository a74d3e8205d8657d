//! What a tool prints while it runs, told to the client: as progress, and as messages.

use std::time::Duration;

use lillux::process::Stream;
use rmcp::RoleServer;
#[expect(
    deprecated,
    reason = "clients of the revisions before 2026-07-28 log this way"
)]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use rye_executor::OutputListener;
use rye_items::ItemRef;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How many pieces may wait to be told. The result holds all of them anyway.
const WAITING: usize = 256;

/// How often progress is told at most.
const PACE: Duration = Duration::from_millis(100);

/// The longest line that is told.
const LINE: usize = 500;

/// Tells a client what a tool prints.
pub(super) struct Relay {
    item: String,
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
    /// Whether the client wants messages about what goes on.
    log: bool,
    pieces: (mpsc::Sender<Piece>, mpsc::Receiver<Piece>),
}

struct Piece {
    stream: Stream,
    bytes: Vec<u8>,
}

impl Relay {
    /// None where the client wants to hear nothing.
    #[expect(
        deprecated,
        reason = "clients of the revisions before 2026-07-28 log this way"
    )]
    pub(super) fn of(
        item: &ItemRef,
        level: Option<LoggingLevel>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Self> {
        let progress = context.meta.get_progress_token();
        let log = matches!(level, Some(LoggingLevel::Debug | LoggingLevel::Info));
        (progress.is_some() || log).then(|| Self {
            item: item.id.to_string(),
            peer: context.peer.clone(),
            progress,
            log,
            pieces: mpsc::channel(WAITING),
        })
    }

    pub(super) fn listener(&self) -> OutputListener {
        let pieces = self.pieces.0.clone();
        OutputListener::new(move |stream, bytes| {
            let bytes = bytes.to_vec();
            let _ = pieces.try_send(Piece { stream, bytes });
        })
    }

    /// Tells what is heard until the work is done.
    pub(super) async fn along<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut told = Told::default();
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    while let Ok(piece) = self.pieces.1.try_recv() {
                        self.tell(piece, &mut told).await;
                    }
                    return done;
                }
                Some(piece) = self.pieces.1.recv() => self.tell(piece, &mut told).await,
            }
        }
    }

    #[expect(
        deprecated,
        reason = "clients of the revisions before 2026-07-28 log this way"
    )]
    async fn tell(&self, piece: Piece, told: &mut Told) {
        let lines = told.take(&piece);
        if self.log && piece.stream == Stream::Stderr {
            for line in &lines {
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line))
                    .with_logger(&self.item);
                // A client that is gone is noticed elsewhere.
                let _ = self.peer.notify_logging_message(message).await;
            }
        }
        let is_time = told.last.is_none_or(|last| last.elapsed() >= PACE);
        if let (Some(token), true) = (&self.progress, is_time) {
            told.last = Some(Instant::now());
            #[expect(clippy::cast_precision_loss, reason = "it only has to grow")]
            let progress = ProgressNotificationParam::new(token.clone(), told.bytes as f64);
            let progress = match lines.last() {
                Some(line) => progress.with_message(line.clone()),
                None => progress,
            };
            let _ = self.peer.notify_progress(progress).await;
        }
    }
}

/// What has been told.
#[derive(Default)]
struct Told {
    bytes: u64,
    last: Option<Instant>,
}

impl Told {
    /// The lines of a piece, cut to what a person reads.
    fn take(&mut self, piece: &Piece) -> Vec<String> {
        self.bytes += piece.bytes.len() as u64;
        let text = String::from_utf8_lossy(&piece.bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| line.chars().take(LINE).collect())
            .collect()
    }
}
