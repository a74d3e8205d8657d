//! Metrics of event streams.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rye_engine::clock::{Clock as _, SystemClock};
use rye_protocol::Millis;

use crate::events::Frame;
use crate::server::App;

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.5, 15.0];

/// How a stream is sent.
#[derive(Debug, Clone, Copy, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Transport {
    Sse,
    Websocket,
}

/// Metrics of all event streams of the server.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    registry: Registry,
    open: Family<[(&'static str, &'static str); 1], Gauge>,
    lag: Histogram,
    lagged: Counter,
}

impl Default for StreamMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("rye");
        let (open, lagged) = (Family::default(), Counter::default());
        let lag = Histogram::new(BOUNDS);
        let help = "Number of open event streams";
        registry.register("open_streams", help, open.clone());
        let help = "Time from the commit of an event until it is sent to a stream";
        registry.register_with_unit("stream_lag", help, Unit::Seconds, lag.clone());
        let help = "Number of times that a client was too slow for live events";
        registry.register("stream_lagged", help, lagged.clone());
        Self {
            registry,
            open,
            lag,
            lagged,
        }
    }
}

impl StreamMetrics {
    /// The metrics, to be encoded with those of the engine.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Counts a stream while it is open.
pub(crate) struct OpenStream {
    app: App,
    opened_at: Millis,
    gauge: Gauge,
}

impl OpenStream {
    pub(crate) fn new(app: &App, transport: Transport) -> Self {
        let labels = [("transport", transport.into())];
        let gauge = app.stream_metrics.open.get_or_create_owned(&labels);
        gauge.inc();
        Self {
            app: app.clone(),
            opened_at: now(),
            gauge,
        }
    }

    /// A frame is sent. Events from before the stream are replayed and have no lag.
    pub(crate) fn sent(&self, frame: &Frame) {
        let metrics = &self.app.stream_metrics;
        if frame.name == "lagged" {
            metrics.lagged.inc();
        }
        if let Some(at) = frame.committed_at.filter(|at| *at >= self.opened_at) {
            let lag: Duration = at.until(now());
            metrics.lag.observe(lag.as_secs_f64());
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

fn now() -> Millis {
    SystemClock::default().now()
}
