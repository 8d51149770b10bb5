//! Delay of events: each has the time of its creation, by the clock of the same machine.

use std::{cell::RefCell, rc::Rc};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::LocalSet;

use super::clock::{TICKS, TIME_PREFIX, now};
use crate::{
    http1::Connection,
    request::{Template, Wire},
    server::Server,
};

/// Streams at a time.
const STREAMS: u32 = 8;

/// Cost of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// From when it was made to when it arrived, at the median, in microseconds.
    pub(super) late_us: f64,
    /// CPU of the server, in microseconds.
    pub(super) cpu_us: f64,
}

/// Follows some streams at once, several times.
pub(super) async fn measure(server: &Server, scale: f64) -> Result<Delay> {
    follow(server).await?;
    let before = server.cpu_ns()?;
    let mut late = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let rounds = (3.0 * scale).ceil() as u32;
    for _ in 0..rounds {
        late.add(follow(server).await?)?;
    }
    let events = u64::from(rounds * STREAMS * TICKS);
    ensure!(late.len() == events, "{} of {events} events came", late.len());
    Ok(Delay {
        late_us: late.value_at_quantile(0.5) as f64,
        cpu_us: (server.cpu_ns()? - before) as f64 / 1000.0 / events as f64,
    })
}

async fn follow(server: &Server) -> Result<Histogram<u64>> {
    let local = LocalSet::new();
    let late = Rc::new(RefCell::new(Histogram::new_with_bounds(1, 60_000_000, 3)?));
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let mut connection = Connection::open(&server.address).await?;
        let mut request = Template::send(server.path, Wire::JsonRpcV1, "what time is it?", true)?;
        let late = Rc::clone(&late);
        streams.push(local.spawn_local(async move {
            let piece = |piece: &[u8]| {
                let now = now();
                for time in times(piece) {
                    late.borrow_mut().saturating_record(now.saturating_sub(time) / 1000);
                }
            };
            connection.follow(request.fill(number.into()), piece).await
        }));
    }
    local.await;
    for stream in streams {
        stream.await??;
    }
    let late = late.borrow().clone();
    Ok(late)
}

/// The times that were told.
pub(crate) fn times(piece: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(piece, TIME_PREFIX).filter_map(|at| {
        let digits = piece[at + TIME_PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.map(|byte| u64::from(byte - b'0')).reduce(|number, digit| number * 10 + digit)
    })
}
