//! Standard input that is written while a process runs, for programs that send requests and expect answers.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;

use crate::process::LineDecision;

/// Maximum number of bytes that wait until the process reads them.
const MAX_WAITING: usize = 64 << 20;

/// Input of a process. Clones share their bytes: the callback for output lines keeps one and adds its answers.
#[derive(Debug, Clone, Default)]
pub struct Dialog(Arc<Mutex<DialogState>>);

#[derive(Debug, Default)]
struct DialogState {
    waiting: Vec<u8>,
    farewell: Vec<u8>,
    is_closed: bool,
    is_overfull: bool,
    is_farewell_said: bool,
}

impl Dialog {
    fn state(&self) -> MutexGuard<'_, DialogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes. A process that leaves too many of them unread is stopped.
    pub fn send(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.is_overfull |= state.waiting.len() + bytes.len() > MAX_WAITING;
        if !state.is_closed && !state.is_overfull {
            state.waiting.extend_from_slice(bytes);
        }
    }

    /// Closes the input after the bytes that are waiting.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Sets bytes that are written before the process is stopped, so that it can end its work by itself.
    pub fn set_farewell(&self, bytes: Vec<u8>) {
        self.state().farewell = bytes;
    }

    /// Whether the process was already requested to end its work.
    pub fn is_farewell_said(&self) -> bool {
        self.state().is_farewell_said
    }

    /// Adds the bytes of [`Self::set_farewell`]; returns `false` if there are none or the input is closed.
    pub(super) fn say_farewell(&self) -> bool {
        let farewell = std::mem::take(&mut self.state().farewell);
        let is_said = !farewell.is_empty() && !self.state().is_closed;
        self.state().is_farewell_said = is_said;
        self.send(&farewell);
        is_said
    }

    /// Removes and returns the waiting bytes.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().waiting)
    }
}

/// Writer of a [`Dialog`].
pub(super) struct DialogWriter {
    dialog: Dialog,
    stdin: Option<ChildStdin>,
    chunk: Vec<u8>,
    written: usize,
}

impl DialogWriter {
    pub(super) fn new(dialog: Dialog, stdin: ChildStdin) -> Self {
        Self { dialog, stdin: Some(stdin), chunk: Vec::new(), written: 0 }
    }

    pub(super) fn dialog(&self) -> &Dialog {
        &self.dialog
    }

    /// Writes some of the waiting bytes; never returns if there are none. May be dropped and called again.
    pub(super) async fn write(&mut self) -> LineDecision {
        if self.written == self.chunk.len() {
            (self.chunk, self.written) = (self.dialog.take(), 0);
        }
        if self.chunk.is_empty() && self.dialog.state().is_closed {
            self.stdin = None;
        }
        if std::mem::take(&mut self.dialog.state().is_overfull) {
            return LineDecision::Stop("it does not read its input".to_owned());
        }
        match &mut self.stdin {
            Some(stdin) if !self.chunk.is_empty() => match stdin.write(&self.chunk[self.written..]).await {
                Ok(count) if count > 0 => self.written += count,
                _ => {
                    self.stdin = None;
                    self.dialog.close();
                }
            },
            _ => pending().await,
        }
        LineDecision::Continue
    }
}
