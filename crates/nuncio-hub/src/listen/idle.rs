//! Closes connections without progress: those that never send a request, that take too long to send one, that
//! are idle after the last one, and that do not read their responses.
//!
//! A request costs two additions here. A coarse timer per connection compares the counters with those of its
//! last check, and treats a difference as if it had just happened. So a connection is closed up to two checks
//! after its timeout, never before.
//!
//! hyper's own header timeout for HTTP/1 is switched off in favour of this one. It runs from the end of the
//! last response, so it would also be the idle timeout, which could not be longer; and it makes a timer per
//! request.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;
use tokio::time::Instant;

use crate::config::Connections;

/// Checks within the shortest of the timeouts.
const CHECKS_PER_TIMEOUT: u32 = 3;

/// Counters of the activity on a connection. Their relative order does not matter: a change that one check
/// misses is seen by the next.
#[derive(Debug, Default)]
pub(super) struct Activity {
    in_flight: AtomicUsize,
    /// Number of requests so far.
    begun: AtomicU64,
    /// Number of bytes so far.
    read: AtomicU64,
    written: AtomicU64,
    /// Bytes read when the last response was complete: any beyond are the head of a new request.
    settled: AtomicU64,
    /// Bytes wait to be written, and the peer does not read.
    is_blocked: AtomicBool,
    is_http2: AtomicBool,
}

/// The counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ActivityCounts {
    in_flight: usize,
    begun: u64,
    written: u64,
    /// A part of a request head has been read.
    has_part: bool,
    is_blocked: bool,
    is_http2: bool,
}

impl Activity {
    pub(super) fn read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Relaxed);
    }

    fn begin(self: &Arc<Self>, version: Version) -> RequestInFlight {
        if self.begun.fetch_add(1, Relaxed) == 0 {
            self.is_http2.store(version == Version::HTTP_2, Relaxed);
        }
        self.in_flight.fetch_add(1, Relaxed);
        RequestInFlight(Arc::clone(self))
    }

    fn reading(&self) -> ActivityCounts {
        ActivityCounts {
            in_flight: self.in_flight.load(Relaxed),
            begun: self.begun.load(Relaxed),
            has_part: self.read.load(Relaxed) > self.settled.load(Relaxed),
            written: self.written.load(Relaxed),
            is_blocked: self.is_blocked.load(Relaxed),
            is_http2: self.is_http2.load(Relaxed),
        }
    }
}

/// A request without a complete response.
struct RequestInFlight(Arc<Activity>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.settled.store(self.0.read.load(Relaxed), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Counts requests in flight, from their heads to the last bytes of their responses.
pub(super) struct CountedService<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S> CountedService<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<S, A, B> Service<Request<A>> for CountedService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Unpin,
{
    type Response = Response<CountedBody<B>>;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn call(&self, request: Request<A>) -> Self::Future {
        let in_flight = Some(self.activity.begin(request.version()));
        Answering { future: self.inner.call(request), in_flight }
    }
}

/// The future of a response.
pub(super) struct Answering<F> {
    future: F,
    in_flight: Option<RequestInFlight>,
}

impl<F, B, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = Result<Response<CountedBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.future).poll(cx))?;
        let in_flight = self.in_flight.take();
        Poll::Ready(Ok(response.map(|body| CountedBody { body, _in_flight: in_flight })))
    }
}

/// The body of a response. hyper drops it with its last byte, or with its stream.
pub(super) struct CountedBody<B> {
    body: B,
    _in_flight: Option<RequestInFlight>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Check again later.
    Keep,
    /// Close gracefully: requests in flight are answered.
    Close,
    /// Cut: it was asked to close and does not, or its peer does not read.
    Cut,
}

/// Checks a connection at intervals.
#[derive(Debug)]
pub(super) struct IdleWatch {
    timeouts: Connections,
    seen: ActivityCounts,
    /// Time of the last activity.
    quiet_since: Instant,
    /// Time at which a part of a request head was first seen.
    head_since: Option<Instant>,
    /// Time at which the peer was first seen not to read.
    blocked_since: Option<Instant>,
    /// Time at which the connection was asked to close.
    closing_since: Option<Instant>,
}

impl IdleWatch {
    pub(super) fn new(timeouts: Connections, now: Instant) -> Self {
        Self {
            timeouts,
            seen: ActivityCounts::default(),
            quiet_since: now,
            head_since: None,
            blocked_since: None,
            closing_since: None,
        }
    }

    /// Interval between checks.
    pub(super) fn interval(&self) -> Duration {
        let Connections { head_timeout, idle_timeout, write_timeout, .. } = self.timeouts;
        head_timeout.min(idle_timeout).min(write_timeout) / CHECKS_PER_TIMEOUT
    }

    /// Notes that the connection was asked to close for another reason.
    pub(super) fn closing(&mut self, now: Instant) {
        self.closing_since.get_or_insert(now);
    }

    pub(super) fn look(&mut self, activity: &Activity, now: Instant) -> Verdict {
        self.judge(activity.reading(), now)
    }

    fn judge(&mut self, reading: ActivityCounts, now: Instant) -> Verdict {
        let seen = std::mem::replace(&mut self.seen, reading);
        let writes = reading.written != seen.written;
        self.blocked_since =
            if reading.is_blocked && !writes { self.blocked_since.or(Some(now)) } else { None };
        if self.blocked_since.is_some_and(|since| now - since >= self.timeouts.write_timeout) {
            return Verdict::Cut;
        }
        // Before the first request there is no response: bytes written are HTTP/2 frames, and the connection
        // is not yet known to be HTTP/2.
        let answers = writes && reading.begun > 0;
        if let Some(since) = self.closing_since {
            let is_over = reading.is_http2 && now - since >= self.timeouts.idle_timeout;
            let is_stuck = reading.in_flight == 0 && (!answers || is_over);
            return if is_stuck { Verdict::Cut } else { Verdict::Keep };
        }
        // HTTP/2 keep-alive frames in either direction are no reason to keep the connection.
        let takes = answers && !reading.is_http2;
        if reading.in_flight > 0 || reading.begun != seen.begun || takes {
            (self.quiet_since, self.head_since) = (now, None);
            return Verdict::Keep;
        }
        if reading.begun > 0 && reading.has_part && !reading.is_http2 {
            self.head_since.get_or_insert(now);
        }
        let head_is_late = self.head_since.is_some_and(|since| now - since >= self.timeouts.head_timeout);
        // The first request has no more time than the head of any later one.
        let patience =
            if reading.begun == 0 { self.timeouts.head_timeout } else { self.timeouts.idle_timeout };
        if head_is_late || now - self.quiet_since >= patience {
            self.closing_since = Some(now);
            return Verdict::Close;
        }
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 30;
    const IDLE: u64 = 120;
    const WRITE: u64 = 60;

    /// A connection's story: at these seconds it reads so. Gives when it was closed and cut.
    fn check(name: &str, story: &[(u64, ActivityCounts)], expected: &[(u64, Verdict)]) {
        let timeouts = Connections {
            head_timeout: Duration::from_secs(HEAD),
            idle_timeout: Duration::from_secs(IDLE),
            write_timeout: Duration::from_secs(WRITE),
            ..Connections::default()
        };
        let start = Instant::now();
        let mut watch = IdleWatch::new(timeouts, start);
        let mut verdicts = Vec::new();
        let mut now = 0;
        while now < 1_000 && !matches!(verdicts.last(), Some((_, Verdict::Cut))) {
            now += watch.interval().as_secs();
            let reading = story.iter().rev().find(|(at, _)| *at <= now).map(|(_, reading)| *reading);
            let verdict = watch.judge(reading.unwrap_or_default(), start + Duration::from_secs(now));
            if verdict != Verdict::Keep {
                verdicts.push((now, verdict));
            }
        }
        assert_eq!(verdicts, expected, "{name}");
    }

    #[test]
    fn what_is_closed_and_when() {
        use Verdict::{Close, Cut};
        let one = ActivityCounts { begun: 1, written: 100, ..ActivityCounts::default() };
        let two = ActivityCounts { is_http2: true, ..one };
        let asking = ActivityCounts { in_flight: 1, begun: 1, has_part: true, ..ActivityCounts::default() };
        let part = ActivityCounts { has_part: true, ..ActivityCounts::default() };
        check("silent", &[], &[(30, Close), (40, Cut)]);
        check("half a request", &[(5, part)], &[(30, Close), (40, Cut)]);
        // Before the first request nobody knows the version.
        let settings = ActivityCounts { written: 50, ..part };
        check("the preface of HTTP/2", &[(1, settings)], &[(30, Close), (40, Cut)]);
        let pongs: Vec<_> = (0..100).map(|n| (n * 10, ActivityCounts { written: 50 + n, ..part })).collect();
        check("pings and pongs and no request", &pongs, &[(30, Close), (40, Cut)]);
        check("one request", &[(1, one)], &[(130, Close), (140, Cut)]);
        check("one request of HTTP/2", &[(1, two)], &[(130, Close), (140, Cut)]);
        check("a request in flight", &[(1, asking)], &[]);
        check("a long one", &[(1, asking), (500, one)], &[(620, Close), (630, Cut)]);
        let second = ActivityCounts { begun: 2, written: 200, ..one };
        check("a second one", &[(1, one), (100, second)], &[(220, Close), (230, Cut)]);
        let half = ActivityCounts { has_part: true, ..one };
        check("half a second one", &[(1, one), (60, half)], &[(90, Close), (100, Cut)]);
        check("half a second one at once", &[(1, half)], &[(50, Close), (60, Cut)]);
        let whole = [(1, one), (60, half), (80, second)];
        check("a second one in time", &whole, &[(200, Close), (210, Cut)]);
        let frames = |n| ActivityCounts { has_part: true, written: 100 + n, ..two };
        let pongs: Vec<_> = (0..100).map(|n| (n * 10, frames(n))).collect();
        check("pings and pongs", &pongs, &[(130, Close), (250, Cut)]);
        let takes: Vec<_> = (0..30).map(|n| (n * 10, ActivityCounts { written: 100 + n, ..one })).collect();
        check("a large answer, taken slowly", &takes, &[(410, Close), (420, Cut)]);
        let late = ActivityCounts { in_flight: 1, begun: 2, ..one };
        check(
            "a request at the last moment",
            &[(1, one), (135, late), (300, second)],
            &[(130, Close), (310, Cut)],
        );
    }

    #[test]
    fn who_does_not_take_the_answer_is_cut() {
        use Verdict::Cut;
        for is_http2 in [false, true] {
            let streams = ActivityCounts {
                in_flight: 1,
                begun: 1,
                written: 100,
                is_http2,
                ..ActivityCounts::default()
            };
            let blocked = ActivityCounts { is_blocked: true, ..streams };
            check("a stream with nothing to say", &[(1, streams)], &[]);
            check("a stream that nobody reads", &[(1, blocked)], &[(80, Cut)]);
            check("after a while", &[(1, streams), (495, blocked)], &[(560, Cut)]);
            check("in time", &[(1, streams), (495, blocked), (550, streams)], &[]);
            let slow: Vec<_> =
                (0..20).map(|n| (1 + n * 50, ActivityCounts { written: 100 + n, ..blocked })).collect();
            check("a stream that is read slowly", &slow, &[]);
        }
        let answered =
            ActivityCounts { begun: 1, written: 100, is_blocked: true, ..ActivityCounts::default() };
        check("an answer that nobody reads", &[(1, answered)], &[(80, Cut)]);
    }
}
