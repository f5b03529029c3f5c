//! Streams of events for pages: one task looks for changes, all listeners share what it finds.
//!
//! The ids of events are positions in the log of steps, so that a listener that comes back gets what it missed. A stream ends
//! after five minutes; the listener comes back with a new request, whose rights are checked anew.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

use super::data::{self, FeedChange};
use super::layout::PageError;
use crate::domain::model::ids::{LoopId, RepoRef};
use crate::domain::trust::viewer::ViewRight;
use crate::engine::Engine;
use crate::web::{Viewer, WebState};

/// Interval between two looks for changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of comments that keep a connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum duration of a stream; afterwards the rights are checked anew.
const STREAM_TIME: Duration = Duration::from_secs(300);
/// Maximum number of listeners.
const MAX_LISTENERS: usize = 1_000;
/// Number of changes that a slow listener may be behind.
const BACKLOG: usize = 1_024;
/// Maximum number of missed steps that are sent again; a page needs no more than to know that something changed.
const MAX_REPLAYED: usize = 200;
/// Header in which a listener says what it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// Feed of a service; it starts with the first listener.
#[derive(Default)]
pub(super) struct LazyFeed(OnceLock<Feed>);

/// Changes for all listeners.
struct Feed {
    changes: broadcast::Sender<Arc<Vec<FeedChange>>>,
    listeners: Arc<Semaphore>,
}

impl Feed {
    /// Starts the task that looks for changes; it ends with the service.
    fn start(engine: &Arc<Engine>) -> Self {
        let (changes, _) = broadcast::channel(BACKLOG);
        #[expect(clippy::disallowed_methods, reason = "one look for all listeners, which ends with the service")]
        tokio::spawn(look(engine.clone(), changes.clone()));
        Self { changes, listeners: Arc::new(Semaphore::new(MAX_LISTENERS)) }
    }
}

/// Looks for changes while anybody listens.
async fn look(engine: Arc<Engine>, changes: broadcast::Sender<Arc<Vec<FeedChange>>>) {
    let mut position = None;
    loop {
        let stopped = tokio::time::timeout(LOOK_INTERVAL, engine.stopping.cancelled()).await;
        if stopped.is_ok() {
            return;
        }
        if changes.receiver_count() == 0 {
            position = None;
            continue;
        }
        let after = position;
        let found = engine.store.read(move |c| match after {
            Some(after) => data::feed_after(c, after, BACKLOG),
            None => Ok((Vec::new(), data::feed_position(c)?)),
        });
        match found.await {
            Ok((found, next)) => {
                // Without an earlier position the listeners look themselves.
                let begins = position.replace(next).is_none();
                if begins || !found.is_empty() {
                    // Nobody may listen any more.
                    let _ = changes.send(Arc::new(found));
                }
            }
            Err(error) => tracing::debug!(%error, "changes for the dashboard could not be read"),
        }
    }
}

/// Listener of a stream.
struct FeedListener {
    state: Arc<WebState>,
    viewer: Viewer,
    changes: broadcast::Receiver<Arc<Vec<FeedChange>>>,
    /// Loop that it listens to; `None` for all.
    of: Option<LoopId>,
    /// Last position that was sent.
    last: i64,
    /// Whether missed steps are read before the next change.
    behind: bool,
    ready: VecDeque<Event>,
    repositories: HashMap<LoopId, Option<RepoRef>>,
    ends: tokio::time::Instant,
    _place: OwnedSemaphorePermit,
}

impl FeedListener {
    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if std::mem::take(&mut self.behind) {
                let (last, of) = (self.last, self.of.clone());
                let missed =
                    self.state.engine.store.read(move |c| data::steps_after(c, last, of.as_ref(), MAX_REPLAYED));
                let missed = missed.await.ok()?;
                self.take(&missed).await;
                continue;
            }
            let stopping = self.state.engine.stopping.clone();
            let changes = tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep_until(self.ends) => return None,
                changes = self.changes.recv() => changes,
            };
            match changes {
                Ok(changes) if changes.is_empty() => self.behind = true,
                Ok(changes) => self.take(&changes).await,
                Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Makes events of those changes that the viewer may see and does not have.
    async fn take(&mut self, changes: &[FeedChange]) {
        for change in changes {
            if self.of.as_ref().is_some_and(|of| *of != change.loop_id) || !self.sees(&change.loop_id).await {
                continue;
            }
            let position = change.step.map(|(row, seq)| if self.of.is_some() { seq } else { row });
            if position.is_some_and(|position| position <= self.last) || (position.is_none() && self.of.is_none()) {
                continue;
            }
            let event = Event::default().event("changed").data(change.loop_id.as_str());
            self.ready.push_back(match position {
                Some(position) => {
                    self.last = position;
                    event.id(position.to_string())
                }
                None => event,
            });
        }
    }

    async fn sees(&mut self, id: &LoopId) -> bool {
        if !self.repositories.contains_key(id) {
            let wanted = id.clone();
            let found = self.state.engine.store.read(move |c| data::repository_of(c, &wanted)).await;
            self.repositories.insert(id.clone(), found.unwrap_or_default());
        }
        match self.repositories.get(id) {
            Some(Some(repo)) => {
                self.state.access.right(&self.state.engine, &self.viewer, repo, false).await >= ViewRight::Read
            }
            _ => false,
        }
    }
}

/// Streams the changes of all loops that the viewer may see.
pub(super) async fn all(
    State(state): State<Arc<WebState>>,
    Extension(feed): Extension<Arc<LazyFeed>>,
    viewer: Viewer,
    headers: HeaderMap,
) -> Response {
    stream(state, &feed, viewer, None, &headers).await
}

/// Streams the changes of one loop.
pub(super) async fn of_loop(
    State(state): State<Arc<WebState>>,
    Extension(feed): Extension<Arc<LazyFeed>>,
    viewer: Viewer,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let id = LoopId::new(id);
    let wanted = id.clone();
    let repo = match state.engine.store.read(move |c| data::repository_of(c, &wanted)).await {
        Ok(Some(repo)) => repo,
        Ok(None) => return PageError::NotFound.page(&state, &viewer),
        Err(error) => return PageError::Store(error).page(&state, &viewer),
    };
    if state.access.right(&state.engine, &viewer, &repo, false).await < ViewRight::Read {
        return PageError::NotFound.page(&state, &viewer);
    }
    stream(state, &feed, viewer, Some(id), &headers).await
}

async fn stream(
    state: Arc<WebState>,
    feed: &LazyFeed,
    viewer: Viewer,
    of: Option<LoopId>,
    headers: &HeaderMap,
) -> Response {
    let feed = feed.0.get_or_init(|| Feed::start(&state.engine));
    let changes = feed.changes.subscribe();
    let Ok(place) = feed.listeners.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open; reload in a moment.\n").into_response();
    };
    let known = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()?.trim().parse::<i64>().ok());
    let last = match known {
        Some(known) => known,
        None => {
            let id = of.clone();
            let newest = state.engine.store.read(move |c| match &id {
                Some(id) => Ok(data::newest_steps(c, id, 1)?.first().map_or(0, |step| step.seq)),
                None => Ok(data::feed_position(c)?.step),
            });
            newest.await.unwrap_or(i64::MAX)
        }
    };
    let listener = FeedListener {
        state,
        viewer,
        changes,
        of,
        last,
        behind: true,
        ready: VecDeque::new(),
        repositories: HashMap::new(),
        ends: tokio::time::Instant::now() + STREAM_TIME,
        _place: place,
    };
    Sse::new(events(listener)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn events(listener: FeedListener) -> impl Stream<Item = Result<Event, Infallible>> {
    futures::stream::unfold(listener, async |mut listener| {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    })
}
