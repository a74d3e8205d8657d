//! This process as a host: its row, its advisory lock, its heartbeat, and the notifications that it
//! sends and receives. All of them use one connection outside of the pool.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lillux::process::Handle;
use rye_engine::store::StoreError;
use rye_protocol::SessionId;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use super::db::{Db, limited};
use super::error::{DbError, DbResult};
use super::liveness::{LOST_AFTER, Liveness, boot_time};
use super::migrate::migrate;

/// Interval of the heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Pause before the host connects again.
const RECONNECT_DELAY: Duration = Duration::from_millis(300);

/// Capacity of the channel that announces posts. A slower subscriber gets a lag error.
const POSTS_CAPACITY: usize = 1024;

/// Maximum number of notifications that are sent at once.
const MAX_NOTICES: usize = 500;

/// How long before a gap touched sessions are announced after it, for transactions that took long.
const OVERLAP: Duration = Duration::from_secs(10);

/// The channels of the database.
const POSTS: &str = "rye_posts";
const COMMITS: &str = "rye_commits";
const HOSTS: &str = "rye_hosts";

/// Something to tell the other hosts.
#[derive(Debug)]
enum Notice {
    /// A session was claimed or released.
    Touched(SessionId),
    Committed,
    /// Everything sent before is written when this is answered.
    Flush(oneshot::Sender<()>),
}

/// This process as a host.
pub(super) struct Host {
    /// Identifies the host; also the key of its advisory lock.
    pub(super) instance: i64,
    name: String,
    process: String,
    pub(super) liveness: Arc<Liveness>,
    /// Posts, claims and releases of all hosts.
    posts: broadcast::Sender<SessionId>,
    /// Commits of all hosts.
    commits: watch::Sender<()>,
    notices: mpsc::UnboundedSender<Notice>,
    /// Whether there are other hosts, which must be told of commits.
    has_others: AtomicBool,
    draining: watch::Sender<bool>,
}

/// The queue of a host's connection.
pub(super) struct NoticeQueue(mpsc::UnboundedReceiver<Notice>);

impl Host {
    /// A host for this process.
    pub(super) fn new() -> Result<(Self, NoticeQueue), StoreError> {
        let unknown = |error: &dyn std::fmt::Display| {
            StoreError::Unavailable(format!("cannot identify this process: {error}"))
        };
        let name = fs::read_to_string("/proc/sys/kernel/hostname");
        let name = name.map_err(|error| unknown(&error))?.trim().to_owned();
        let pid = i32::try_from(std::process::id()).map_err(|error| unknown(&error))?;
        let process = Handle::from_pid(pid).map_err(|error| unknown(&error))?;
        let (notices, queue) = mpsc::unbounded_channel();
        let host = Self {
            instance: random_id(),
            name,
            process: process.to_string(),
            liveness: Arc::default(),
            posts: broadcast::channel(POSTS_CAPACITY).0,
            commits: watch::Sender::default(),
            notices,
            has_others: AtomicBool::new(true),
            draining: watch::Sender::new(false),
        };
        Ok((host, NoticeQueue(queue)))
    }

    pub(super) fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.posts.subscribe()
    }

    pub(super) fn subscribe_commits(&self) -> watch::Receiver<()> {
        self.commits.subscribe()
    }

    /// Whether somebody has asked this host to drain.
    pub(super) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Announces a claim or a release.
    pub(super) fn touched(&self, session: SessionId) {
        // The queue ends when the store is closed.
        let _ = self.notices.send(Notice::Touched(session));
    }

    /// Announces a commit.
    pub(super) fn committed(&self) {
        self.commits.send_replace(());
        if self.has_others.load(Ordering::Relaxed) {
            let _ = self.notices.send(Notice::Committed);
        }
    }

    /// Waits until everything that was announced before is sent.
    pub(super) async fn flush(&self) {
        let (sent, done) = oneshot::channel();
        let _ = self.notices.send(Notice::Flush(sent));
        let _ = done.await;
    }

    fn announce(&self, session: SessionId) {
        // An error means that there is no subscriber.
        let _ = self.posts.send(session);
    }

    /// Processes a notification of the database.
    fn receive(&self, channel: &str, payload: &str) {
        match channel {
            POSTS => {
                if let Ok(session) = payload.parse() {
                    self.announce(session);
                }
            }
            COMMITS => {
                self.commits.send_replace(());
            }
            _ => {}
        }
    }
}

/// A random positive number.
pub(super) fn random_id() -> i64 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    ((high ^ low) >> 1).cast_signed()
}

/// The host's own connection.
struct Link {
    client: Client,
    /// Notifications: channel and payload. Ends with the connection.
    notifications: mpsc::UnboundedReceiver<(String, String)>,
    /// Whether notifications arrive. A connection pooler in between may swallow them.
    is_listening: bool,
    has_lock: bool,
    /// The counter of changes at the last heartbeat, and whether it had changed.
    changes: (i64, bool),
    /// The number of posts of each session at its last announcement, without notifications.
    announced: HashMap<String, i64>,
}

impl Link {
    /// Connects, creates the tables if necessary, and registers the host.
    async fn connect(db: &Db, host: &Host) -> DbResult<Self> {
        let connected = db.url.config.connect(db.tls.clone());
        let connected = limited(LOST_AFTER * 2, connected).await;
        let (client, mut connection) = connected.map_err(|error| match error {
            DbError::Broken(reason) | DbError::Unreadable(reason) => DbError::NoConnection(reason),
            other => other,
        })?;
        let (received, notifications) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notification(it)) => {
                        let it = (it.channel().to_owned(), it.payload().to_owned());
                        if received.send(it).is_err() {
                            return;
                        }
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        let mut link = Self {
            client,
            notifications,
            is_listening: false,
            has_lock: false,
            changes: (0, false),
            announced: HashMap::new(),
        };
        migrate(&mut link.client, &db.url).await?;
        // A heartbeat or a notification that a crash of the database loses does no harm.
        let start = format!(
            "SET synchronous_commit = off; LISTEN {POSTS}; LISTEN {COMMITS}; LISTEN {HOSTS};"
        );
        limited(LOST_AFTER, link.client.batch_execute(&start)).await?;
        link.beat(host).await?;
        Ok(link)
    }

    /// Tells the database that this host lives, and reads what it has to know.
    async fn beat(&mut self, host: &Host) -> DbResult<()> {
        const BEAT: &str = "
            INSERT INTO rye.hosts AS h (instance, name, process, version) VALUES ($1, $2, $3, $4)
            ON CONFLICT (instance) DO UPDATE SET seen = clock_timestamp()
            RETURNING h.draining,
                (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
                (SELECT last_value FROM rye.changes),
                EXISTS (SELECT FROM rye.hosts o
                    WHERE o.instance <> $1 AND o.seen > clock_timestamp() - interval '15 s'),
                CASE WHEN $5 THEN pg_notify('rye_hosts', $1::text) END IS NULL";
        let sent = boot_time();
        if !self.has_lock {
            // The server may not have noticed yet that the previous connection is gone.
            let lock = "SELECT pg_try_advisory_lock($1)";
            let row = limited(LOST_AFTER, self.client.query_one(lock, &[&host.instance])).await?;
            self.has_lock = row.try_get(0)?;
        }
        let version = env!("CARGO_PKG_VERSION");
        let params: [&(dyn ToSql + Sync); 5] = [
            &host.instance,
            &host.name,
            &host.process,
            &version,
            &!self.is_listening,
        ];
        let row = limited(LOST_AFTER, self.client.query_one(BEAT, &params)).await?;
        host.liveness.record(sent, row.try_get(1)?);
        host.draining.send_if_modified(|draining| {
            let now = row.try_get(0).unwrap_or(*draining);
            std::mem::replace(draining, now) != now
        });
        host.has_others.store(row.try_get(3)?, Ordering::Relaxed);
        let changes = row.try_get(2)?;
        let has_changed = changes != self.changes.0;
        // The last change may not have been visible yet at the last heartbeat.
        if has_changed || self.changes.1 {
            host.commits.send_replace(());
        }
        self.changes = (changes, has_changed);
        if !self.is_listening {
            self.poll_posts(host).await?;
        }
        Ok(())
    }

    /// Announces posts to the sessions of this host that no notification has announced.
    async fn poll_posts(&mut self, host: &Host) -> DbResult<()> {
        let sql = "SELECT session, posts FROM rye.leases
                   WHERE instance = $1 AND touched > clock_timestamp() - interval '10 s'";
        let rows = limited(LOST_AFTER, self.client.query(sql, &[&host.instance])).await?;
        let mut announced = HashMap::new();
        for row in rows {
            let (session, posts): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            if self.announced.get(&session) != Some(&posts)
                && let Ok(session) = session.parse()
            {
                host.announce(session);
            }
            announced.insert(session, posts);
        }
        self.announced = announced;
        Ok(())
    }

    /// Announces sessions that were touched while the connection was lost.
    async fn announce_since(&self, host: &Host, gap: Duration) -> DbResult<()> {
        let sql = "SELECT session FROM rye.leases
                   WHERE touched > clock_timestamp() - make_interval(secs => $1)";
        let gap = (gap + OVERLAP).as_secs_f64();
        let rows = limited(LOST_AFTER, self.client.query(sql, &[&gap])).await?;
        for row in rows {
            if let Ok(session) = row.try_get::<_, String>(0)?.parse() {
                host.announce(session);
            }
        }
        host.commits.send_replace(());
        Ok(())
    }

    /// Sends notices to the other hosts.
    async fn notify(&self, notices: &mut Vec<Notice>) -> DbResult<()> {
        let mut touched: Vec<&str> = Vec::new();
        let mut committed = false;
        for notice in notices.iter() {
            match notice {
                Notice::Touched(session) => touched.push(session.as_str()),
                Notice::Committed => committed = true,
                Notice::Flush(_) => {}
            }
        }
        if !touched.is_empty() || committed {
            let sql =
                "SELECT pg_notify('rye_posts', session) FROM unnest($1::text[]) AS s (session)
                       UNION ALL SELECT pg_notify('rye_commits', '') WHERE $2";
            let params: [&(dyn ToSql + Sync); 2] = [&touched, &committed];
            limited(LOST_AFTER, self.client.query(sql, &params)).await?;
        }
        for notice in notices.drain(..) {
            if let Notice::Flush(done) = notice {
                let _ = done.send(());
            }
        }
        Ok(())
    }
}

/// Keeps the host connected. Replies when the first attempt has ended.
pub(super) async fn run(
    db: Arc<Db>,
    host: Arc<Host>,
    queue: NoticeQueue,
    first: oneshot::Sender<DbResult<()>>,
) {
    let NoticeQueue(mut queue) = queue;
    let mut link = match Link::connect(&db, &host).await {
        Ok(link) => {
            let _ = first.send(Ok(()));
            link
        }
        Err(error) => return drop(first.send(Err(error))),
    };
    let mut notices = Vec::new();
    loop {
        let error = match serve(&mut link, &host, &mut queue, &mut notices).await {
            Err(error) => error,
            Ok(never) => match never {},
        };
        let lost = Instant::now();
        tracing::warn!(database = %db.url, %error, "lost the database");
        link = loop {
            sleep(RECONNECT_DELAY).await;
            if let Ok(link) = Link::connect(&db, &host).await
                && link
                    .announce_since(&host, lost.elapsed() + HEARTBEAT)
                    .await
                    .is_ok()
            {
                break link;
            }
        };
        tracing::info!(database = %db.url, "reached the database again");
    }
}

/// Serves a connection until it breaks.
async fn serve(
    link: &mut Link,
    host: &Host,
    queue: &mut mpsc::UnboundedReceiver<Notice>,
    notices: &mut Vec<Notice>,
) -> DbResult<Infallible> {
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Those of a connection that broke before.
        link.notify(notices).await?;
        tokio::select! {
            _ = queue.recv_many(notices, MAX_NOTICES) => {}
            notification = link.notifications.recv() => match notification {
                Some((channel, payload)) => {
                    link.is_listening |= channel == HOSTS;
                    host.receive(&channel, &payload);
                }
                None => return Err(DbError::Broken("the connection ended".to_owned())),
            },
            _ = beats.tick() => link.beat(host).await?,
        }
    }
}
