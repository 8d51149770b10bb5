//! How much callers may ask for, as the operator wants it.

use nuncio_server::{Limits as RuntimeLimits, bind::BindOptions};

/// What each caller may ask for.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// Bytes of memory that the hub may use; `None`: three quarters of the container's or the machine's.
    pub memory_limit_bytes: Option<usize>,
    /// Bytes of a request.
    pub body_bytes: usize,
    /// Parts of a message.
    pub parts: usize,
    /// Bytes of a task.
    pub max_task_bytes: usize,
    /// Requests; `None`: as many as it likes.
    pub rate: Option<Rate>,
    /// Tasks at a time; `None`: as many as it likes.
    pub tasks: Option<u32>,
    /// Streams at a time; `None`: as many as it likes.
    pub streams: Option<u32>,
    /// Tasks that the hub works on, in the background as well; `None`: as many as it likes.
    pub unfinished_tasks: Option<u32>,
    /// The part of an agent's executions, processes and calls that it may hold while others want them, in percent;
    /// 0: all.
    pub caller_share_percent: u32,
}

/// What a caller may hold of an agent when nothing is said: a quarter.
const CALLER_SHARE_PERCENT: u32 = 25;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_limit_bytes: None,
            body_bytes: BindOptions::default().body_bytes,
            parts: RuntimeLimits::default().parts,
            max_task_bytes: RuntimeLimits::default().max_task_bytes,
            rate: None,
            tasks: None,
            streams: None,
            unfinished_tasks: None,
            caller_share_percent: CALLER_SHARE_PERCENT,
        }
    }
}

/// What all callers together may ask of one agent, and how large a message for it may be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentLimits {
    /// Bytes of a request; `None`: as for all agents.
    pub body_bytes: Option<usize>,
    /// Parts of a message; `None`: as for all agents.
    pub parts: Option<usize>,
    /// Bytes of a task; `None`: as for all agents.
    pub max_task_bytes: Option<usize>,
    /// Requests; `None`: as many as they like.
    pub rate: Option<Rate>,
    /// Tasks at a time; `None`: as many as they like.
    pub tasks: Option<u32>,
    /// Streams at a time; `None`: as many as they like.
    pub streams: Option<u32>,
}

/// So many a second, and so many at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// In the long run; more than 0, perhaps less than 1.
    pub per_second: f64,
    /// At once after a rest; 1 or more.
    pub burst: u32,
}
