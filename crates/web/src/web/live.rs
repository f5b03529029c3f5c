//! Live feed of events in loops for pages and the API, as server-sent events.
//!
//! One task reads the database for all listeners, and only while there are listeners. The id of an event is a position in
//! the feed; a listener that reconnects with `Last-Event-ID` continues there. A stream ends after five minutes, so its
//! client must reconnect and authenticate again. During a stream, rights are checked again after a minute.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::{Instant, Sleep};

use super::{Viewer, WebState};
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef};
use crate::domain::trust::viewer::ViewRight;
use crate::engine::Engine;
use crate::store::StoreError;
use crate::store::feed::{self, FeedEvent, FeedKind, FeedPosition};

/// Maximum number of concurrent listeners.
const MAX_LISTENERS: usize = 1_000;
/// Interval between two reads of the database.
const POLL: Duration = Duration::from_millis(250);
/// Maximum number of events of a kind that are replayed or read at once. A listener that missed more must reload its page.
const MAX_EVENTS: usize = 1_000;
/// Number of events that a slow listener may lag behind before it reads events from the database.
const BUFFER: usize = 1_024;
/// Lifetime of a stream.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Maximum age of a checked right in a stream.
const RIGHT_AGE: Duration = Duration::from_secs(60);
/// Interval of the comments that keep an idle connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Delay before a client reconnects.
const RETRY: Duration = Duration::from_secs(1);

/// Feed shared by all listeners.
pub struct LiveFeed {
    sender: broadcast::Sender<Arc<FeedNotice>>,
    places: Arc<Semaphore>,
    shared: Arc<FeedShared>,
}

/// Message of the reading task.
enum FeedNotice {
    Event(Box<FeedEvent>),
    /// Too many events occurred at once; listeners must read them from the database or start again.
    Gap,
}

/// State shared with the reading task.
#[derive(Default)]
struct FeedShared {
    state: Mutex<FeedReader>,
    wake: Notify,
}

/// State of the reading task: whether it runs, for which listeners, and its last position.
#[derive(Default)]
struct FeedReader {
    started: bool,
    listeners: usize,
    /// Position after the last sent event; `None` without listeners.
    next: Option<FeedPosition>,
}

impl FeedShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, FeedReader> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reason why a listener is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The maximum number of listeners is reached.
    #[error("{MAX_LISTENERS} listeners are connected, which is the maximum; try again in a minute")]
    Full,
    /// The last event's id is not in this feed's format.
    #[error("the id of the last event is not of the form STEP-ACTIVITY-OUTPUT; omit it to start with the next event")]
    BadPosition,
    /// The database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Item for a listener.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveItem {
    /// Event of a loop.
    Event {
        /// Event id in the stream.
        id: FeedPosition,
        /// Event.
        event: Box<FeedEvent>,
    },
    /// The listener missed more events than the feed replays, so it must read its data again.
    Reset {
        /// Position at which the stream continues.
        id: FeedPosition,
    },
}

impl Default for LiveFeed {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BUFFER),
            places: Arc::new(Semaphore::new(MAX_LISTENERS)),
            shared: Arc::default(),
        }
    }
}

impl LiveFeed {
    /// Adds a listener for all loops visible to the viewer, or for one loop whose visibility the caller has checked. `after`
    /// is the id of the last received event; without it, the listener receives only new events.
    ///
    /// # Errors
    /// There are too many listeners, the id is invalid, or the database cannot be read.
    pub async fn listen(
        &self,
        state: &Arc<WebState>,
        viewer: Viewer,
        of: Option<LoopId>,
        after: Option<&str>,
    ) -> Result<LiveListener, ListenError> {
        let after = after.map(|text| FeedPosition::parse(text).ok_or(ListenError::BadPosition)).transpose()?;
        let place = self.places.clone().try_acquire_owned().map_err(|_| ListenError::Full)?;
        // The order matters: the subscription receives later events, and the replay covers events stored before `newest`.
        let membership = FeedMembership::join(self.shared.clone(), place);
        let receiver = self.sender.subscribe();
        let newest = state.engine.store.read(feed::newest).await?;
        self.read_from(newest, &state.engine);
        let (of_session, who) = (state.clone(), viewer.clone());
        let session_end =
            async move { of_session.access.revoked(&of_session.engine, &who, None, ViewRight::Read).await };
        let mut listener = LiveListener {
            state: state.clone(),
            viewer,
            of,
            position: after.unwrap_or(newest),
            waiting: VecDeque::new(),
            rights: HashMap::new(),
            receiver,
            end: Box::pin(tokio::time::sleep(LIFETIME)),
            session_end: Box::pin(session_end),
            _membership: membership,
        };
        if after.is_some() {
            listener.replay().await?;
        }
        Ok(listener)
    }

    /// Makes the task read, from `newest` on if there were no listeners. The first call starts the task.
    fn read_from(&self, newest: FeedPosition, engine: &Arc<Engine>) {
        let mut reader = self.shared.lock();
        reader.next.get_or_insert(newest);
        if !reader.started {
            reader.started = true;
            let task = read_feed(engine.clone(), self.sender.clone(), self.shared.clone());
            #[expect(clippy::disallowed_methods, reason = "one task for all listeners; it ends with the service")]
            tokio::spawn(task);
        }
        drop(reader);
        self.shared.wake.notify_one();
    }
}

/// Reads the feed while there are listeners, until the service stops.
async fn read_feed(engine: Arc<Engine>, sender: broadcast::Sender<Arc<FeedNotice>>, shared: Arc<FeedShared>) {
    loop {
        let next = {
            let mut reader = shared.lock();
            if reader.listeners == 0 {
                reader.next = None;
            }
            reader.next
        };
        let idle = async {
            match next {
                None => shared.wake.notified().await,
                Some(_) => tokio::time::sleep(POLL).await,
            }
        };
        tokio::select! {
            () = engine.context.stopping.cancelled() => return,
            () = idle => {}
        }
        let Some(mut position) = next else { continue };
        let found = engine.store.read(move |c| match feed::since(c, position, None, MAX_EVENTS)? {
            Some(events) => Ok((Some(events), position)),
            None => Ok((None, feed::newest(c)?)),
        });
        match found.await {
            Ok((Some(events), _)) => {
                for event in events {
                    position = position.after(&event);
                    // Sending fails only without receivers, which is fine.
                    let _ = sender.send(Arc::new(FeedNotice::Event(Box::new(event))));
                }
            }
            Ok((None, newest)) => {
                position = newest;
                let _ = sender.send(Arc::new(FeedNotice::Gap));
            }
            Err(error) => tracing::warn!(%error, "cannot read the live feed; the service retries"),
        }
        shared.lock().next = Some(position);
    }
}

/// Registration of a listener; dropping it ends the registration.
struct FeedMembership {
    shared: Arc<FeedShared>,
    _place: OwnedSemaphorePermit,
}

impl FeedMembership {
    fn join(shared: Arc<FeedShared>, place: OwnedSemaphorePermit) -> Self {
        shared.lock().listeners += 1;
        Self { shared, _place: place }
    }
}

impl Drop for FeedMembership {
    fn drop(&mut self) {
        let mut reader = self.shared.lock();
        reader.listeners = reader.listeners.saturating_sub(1);
    }
}

/// One listener.
pub struct LiveListener {
    state: Arc<WebState>,
    viewer: Viewer,
    of: Option<LoopId>,
    position: FeedPosition,
    waiting: VecDeque<LiveItem>,
    rights: HashMap<(ForgeName, RepoId), (ViewRight, Instant)>,
    receiver: broadcast::Receiver<Arc<FeedNotice>>,
    end: Pin<Box<Sleep>>,
    /// Completes when the viewer's session ends.
    session_end: Pin<Box<dyn Future<Output = ()> + Send>>,
    _membership: FeedMembership,
}

impl LiveListener {
    /// Returns the next item visible to the viewer. `None` at the end of the stream: after its lifetime, when the session or
    /// the service ends, or when the database fails.
    pub async fn next(&mut self) -> Option<LiveItem> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                let visible = match &item {
                    LiveItem::Event { event, .. } => self.may_see(event).await,
                    LiveItem::Reset { .. } => true,
                };
                if visible {
                    return Some(item);
                }
                continue;
            }
            let received = tokio::select! {
                () = self.state.engine.context.stopping.cancelled() => return None,
                () = &mut self.end => return None,
                () = &mut self.session_end => return None,
                received = self.receiver.recv() => received,
            };
            match received.as_deref() {
                Ok(FeedNotice::Event(event)) => {
                    let event = (**event).clone();
                    self.take(event);
                }
                Ok(FeedNotice::Gap) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    if let Err(error) = self.replay().await {
                        tracing::warn!(%error, "cannot read a listener's events");
                        return None;
                    }
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Adds an event unless it belongs to another loop or the listener has already received it.
    fn take(&mut self, event: FeedEvent) {
        if !self.position.is_before(&event) {
            return;
        }
        self.position = self.position.after(&event);
        if self.of.as_ref().is_none_or(|of| *of == event.loop_id) {
            self.waiting.push_back(LiveItem::Event { id: self.position, event: Box::new(event) });
        }
    }

    /// Reads the events since the listener's position from the database.
    async fn replay(&mut self) -> Result<(), StoreError> {
        let (after, of) = (self.position, self.of.clone());
        let read = self.state.engine.store.read(move |c| {
            // In this order, the events cover everything up to the newest position.
            let newest = feed::newest(c)?;
            Ok((feed::since(c, after, of.as_ref(), MAX_EVENTS)?, newest))
        });
        let (events, newest) = read.await?;
        match events {
            Some(events) => {
                events.into_iter().for_each(|event| self.take(event));
                self.position = self.position.latest(newest);
            }
            None => {
                self.position = newest;
                self.waiting.push_back(LiveItem::Reset { id: newest });
            }
        }
        Ok(())
    }

    /// Whether the viewer may see an event. Steps require read access; actions of agents require write access.
    async fn may_see(&mut self, event: &FeedEvent) -> bool {
        let least = match event.what {
            FeedKind::Step { .. } => ViewRight::Read,
            FeedKind::Activity(_) | FeedKind::Output { .. } => ViewRight::Write,
        };
        self.right(&event.repo).await >= least
    }

    async fn right(&mut self, repo: &RepoRef) -> ViewRight {
        let key = (repo.forge.clone(), repo.id);
        let now = Instant::now();
        if let Some((right, asked)) = self.rights.get(&key)
            && now.duration_since(*asked) < RIGHT_AGE
        {
            return *right;
        }
        let right = self.state.access.stream_right(&self.state.engine, &self.viewer, repo).await;
        self.rights.insert(key, (right, now));
        right
    }
}

/// Responds with a listener's stream, which starts with its position or with missed events. `render` returns an event's name
/// and data; `None` skips the event.
pub fn stream(
    listener: LiveListener,
    render: impl Fn(&LiveItem) -> Option<(&'static str, String)> + Send + 'static,
) -> Response {
    // A client that is disconnected before the first event also continues from this position.
    let begin =
        listener.waiting.is_empty().then(|| Ok(Event::default().id(listener.position.to_string()).retry(RETRY)));
    let events = futures::stream::unfold((listener, render), |(mut listener, render)| async move {
        loop {
            let item = listener.next().await?;
            let (LiveItem::Event { id, .. } | LiveItem::Reset { id }) = &item;
            if let Some((name, data)) = render(&item) {
                // Line breaks split the data into several fields; the name and the id contain none.
                let event = Event::default().id(id.to_string()).event(name).retry(RETRY).data(data.replace('\r', ""));
                return Some((Ok::<_, Infallible>(event), (listener, render)));
            }
        }
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Buffering proxies would delay events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (headers, Sse::new(futures::stream::iter(begin).chain(events)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
        .into_response()
}
