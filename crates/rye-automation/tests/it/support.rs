//! An engine with a scripted model, stores in memory, and a clock that tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lillux::envelope::OpeningKey;
use rye_automation::{
    FiringOutcome, GraphStarter, Hooks, KeySource, Launcher, Outbox, Owner, Schedule, Scheduler,
    Schedules, Sealer, Sender, StartError, Webhooks,
};
use rye_engine::clock::Clock;
use rye_engine::documents::DocumentStore;
use rye_engine::protocol::{Entry, EntryKind, Millis, Role, SessionId};
use rye_engine::store::SessionFilter;
use rye_engine::{Answer, BoxFuture, Engine};
use rye_store::{SqliteDocuments, SqliteStore};
use serde_json::{Map, Value};

/// The project of the servers.
pub(crate) const PROJECT: &str = "/project";

/// A clock that stands still until it is set.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    pub(crate) fn set(&self, now: Millis) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

/// Graphs cannot be started here.
struct NoGraphs;

impl GraphStarter for NoGraphs {
    fn start<'a>(
        &'a self,
        _: &'a SessionId,
        graph: &'a str,
        _: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), StartError>> {
        let error = StartError {
            code: "not_found".to_owned(),
            message: format!("there is no graph {graph}"),
            is_transient: false,
        };
        Box::pin(async { Err(error) })
    }
}

/// What several servers share: a database and a clock.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) clock: Arc<TestClock>,
    sealer: Sealer,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = OpeningKey::generate().unwrap().to_pem();
        let source: KeySource = Arc::new(move |_| {
            let key = OpeningKey::from_pem(key.as_bytes());
            key.map(Some).map_err(|error| error.to_string())
        });
        Self {
            sealer: Sealer::new(source),
            documents: open_documents(&dir),
            dir,
            clock: Arc::default(),
        }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    pub(crate) fn schedules(&self) -> Schedules {
        Schedules::new(Arc::clone(&self.documents), self.clock())
    }

    pub(crate) fn webhooks(&self) -> Webhooks {
        let documents = Arc::clone(&self.documents);
        Webhooks::new(documents, self.clock(), self.sealer.clone())
    }

    pub(crate) fn hooks(&self) -> Hooks {
        let documents = Arc::clone(&self.documents);
        Hooks::new(documents, self.clock(), self.sealer.clone())
    }

    /// A server with an engine that runs sessions.
    pub(crate) fn server(&self) -> Server {
        let script = "steps: [{ text: done }]".parse().unwrap();
        let models = rye_model::Catalogue::new(".").with("scripted:test", script);
        let engine = Engine::builder()
            .store(SqliteStore::open(database(&self.dir)).unwrap())
            .models(models)
            .sandbox(Arc::new(rye_sandbox::VirtualSandbox::new()))
            .build()
            .unwrap();
        let launcher = Launcher {
            engine: engine.clone(),
            graphs: Arc::new(NoGraphs),
        };
        let scheduler = Scheduler::new(
            open_documents(&self.dir),
            self.clock(),
            launcher.clone(),
            PROJECT.to_owned(),
        );
        let documents = open_documents(&self.dir);
        let sender = Sender::new(documents, self.clock(), self.sealer.clone());
        let documents = open_documents(&self.dir);
        let outbox = Outbox::new(documents, self.clock(), engine.clone());
        Server {
            sender: sender.unwrap(),
            outbox: tokio::sync::Mutex::new(outbox),
            engine,
            launcher,
            scheduler,
        }
    }
}

fn database(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("sessions.db")
}

fn open_documents(dir: &tempfile::TempDir) -> Arc<dyn DocumentStore> {
    Arc::new(SqliteDocuments::open(&database(dir)).unwrap())
}

/// A server of the cluster.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) launcher: Launcher,
    pub(crate) scheduler: Scheduler,
    pub(crate) sender: Sender,
    pub(crate) outbox: tokio::sync::Mutex<Outbox>,
}

impl Server {
    /// The ids of all sessions with the number of their prompts, oldest first.
    pub(crate) async fn prompts(&self) -> Vec<(String, usize)> {
        let filter = SessionFilter {
            limit: usize::MAX,
            ..SessionFilter::default()
        };
        let mut found = Vec::new();
        for session in self.engine.sessions(filter).await.unwrap() {
            let mut prompts = 0;
            for (_, entries) in self.engine.history(&session.id).await.unwrap() {
                let is_prompt = |entry: &&Entry| matches!(&entry.kind, EntryKind::Message(it) if it.role == Role::User);
                prompts += entries.iter().filter(is_prompt).count();
            }
            found.push((session.id.to_string(), prompts));
        }
        found.reverse();
        found
    }

    /// Waits for the end of what a firing has started.
    pub(crate) async fn wait(&self, schedule: &Schedule) -> Answer {
        let Some(FiringOutcome::Started(work)) = schedule.last.clone().map(|it| it.outcome) else {
            panic!("nothing was started: {schedule:?}");
        };
        let prompt = work.prompt.unwrap();
        let answer = self.engine.answer(&work.session, &prompt);
        let answer = tokio::time::timeout(Duration::from_mins(1), answer).await;
        answer.unwrap().unwrap()
    }
}

pub(crate) fn owner() -> Owner {
    Owner {
        user: Some("ada".to_owned()),
        org: None,
        project: PROJECT.to_owned(),
        created_by: "ada".to_owned(),
    }
}
