//! One connection that is there when it is needed: made again after it was lost, not more often than is
//! good for the server.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_protocol::retry::Backoff;
use parking_lot::Mutex;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};
use tokio_postgres::{Client, Error, Row, Statement, error::SqlState, types::ToSql};

use super::address::Address;
use crate::store::{Durability, StoreError};

/// Parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The first wait after a connection could not be made, and the longest.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(1));

/// How often a transaction is tried that others were in the way of.
pub(super) const ATTEMPTS: usize = 10;

/// How a session is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) durability: Durability,
    /// How long an answer may take. Then the connection is given up.
    pub(super) patience: Duration,
    /// How long a statement may take. Then the server gives it up.
    pub(super) statement_timeout: Duration,
}

impl Setup {
    /// Nothing takes longer than this.
    pub(super) fn within(durability: Durability, patience: Duration) -> Self {
        Self { durability, patience, statement_timeout: patience }
    }
}

/// A connection and what is prepared on it.
pub(super) struct Session {
    pub(super) client: Client,
    patience: Duration,
    /// By the address of their text.
    prepared: Mutex<HashMap<usize, Statement>>,
    connection: AbortHandle,
    /// It was given up.
    lost: AtomicBool,
}

impl Drop for Session {
    fn drop(&mut self) {
        // A connection that no longer answers would wait for its last words.
        self.give_up();
    }
}

impl Session {
    pub(super) async fn open(address: &Address, setup: Setup) -> Result<Self, Error> {
        let (client, connection) = address.config.connect(address.tls.clone()).await?;
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to PostgreSQL was lost");
            }
        });
        let session = Self {
            client,
            patience: setup.patience,
            prepared: Mutex::default(),
            connection: connection.abort_handle(),
            lost: AtomicBool::new(false),
        };
        session.client.batch_execute(&settings(setup)).await?;
        Ok(session)
    }

    /// Closes the connection: the server undoes what is not committed.
    pub(super) fn give_up(&self) {
        self.lost.store(true, Ordering::Relaxed);
        self.connection.abort();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.client.is_closed() || self.lost.load(Ordering::Relaxed)
    }

    /// Waits for an answer as long as is reasonable.
    pub(super) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        match timeout(self.patience, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                self.give_up();
                Err(StoreError::down("PostgreSQL does not answer"))
            }
        }
    }

    /// The statement, prepared once.
    pub(super) async fn statement(&self, sql: &'static str) -> Result<Statement, StoreError> {
        let place = sql.as_ptr() as usize;
        let known = self.prepared.lock().get(&place).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.wait(self.client.prepare(sql)).await?;
        self.prepared.lock().insert(place, statement.clone());
        Ok(statement)
    }

    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(sql).await?;
        self.wait(self.client.query(&statement, params)).await
    }

    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<Row>, StoreError> {
        let statement = self.statement(sql).await?;
        self.wait(self.client.query_opt(&statement, params)).await
    }

    pub(super) async fn execute(&self, sql: &'static str, params: Params<'_>) -> Result<u64, StoreError> {
        let statement = self.statement(sql).await?;
        self.wait(self.client.execute(&statement, params)).await
    }

    /// Runs statements that have no parameters and no result.
    pub(super) async fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.wait(self.client.batch_execute(sql)).await
    }
}

/// What every session begins with.
fn settings(Setup { durability, patience, statement_timeout }: Setup) -> String {
    let synchronous = match durability {
        Durability::Full => "on",
        Durability::Relaxed => "off",
    };
    let (millis, statement) = (patience.as_millis(), statement_timeout.as_millis());
    // Every statement of ours goes by an index, whatever the statistics of a young table say; planning it
    // once is enough.
    format!(
        "SET search_path = nuncio, pg_catalog; SET synchronous_commit = {synchronous}; \
         SET statement_timeout = {statement}; SET idle_in_transaction_session_timeout = {millis}; \
         SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3; \
         SET plan_cache_mode = force_generic_plan; SET jit = off; \
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
    )
}

/// A session that is replaced when it is lost.
#[derive(Debug)]
pub(super) struct Link {
    address: Arc<Address>,
    setup: Setup,
    state: tokio::sync::Mutex<State>,
    /// Held by the one transaction that is open.
    turn: tokio::sync::Mutex<()>,
}

/// An open transaction. Dropped without an end, it closes the connection.
pub(super) struct Transaction<'a> {
    pub(super) session: Arc<Session>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
    open: bool,
}

impl Transaction<'_> {
    /// It ended by other words.
    pub(super) fn ended(&mut self, ended: bool) {
        self.open = !ended;
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.session.run("COMMIT").await?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            self.session.give_up();
        }
    }
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// Not before this moment again, and how long the next wait is.
    pause: Option<(Instant, Duration)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.session.is_some() { "connected" } else { "not connected" })
    }
}

impl Link {
    pub(super) fn new(address: Arc<Address>, setup: Setup) -> Self {
        Self { address, setup, state: tokio::sync::Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Waits for its turn on a link where there are transactions: nothing is asked within those of others.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Begins a transaction; only on links on which nothing else is asked.
    pub(super) async fn begin(&self) -> Result<Transaction<'_>, StoreError> {
        let turn = self.turn().await;
        let session = self.session().await?;
        let transaction = Transaction { session, _turn: turn, open: true };
        transaction.session.run("BEGIN").await?;
        Ok(transaction)
    }

    /// The session, made anew if the last one is lost. Fails at once if the last attempt was just now.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| !session.is_lost()) {
            return Ok(Arc::clone(session));
        }
        state.session = None;
        let now = Instant::now();
        let wait = match state.pause {
            Some((until, _)) if now < until => {
                return Err(StoreError::down("PostgreSQL was not reachable a moment ago"));
            }
            Some((_, wait)) => wait,
            None => PAUSES.base,
        };
        // Set before the attempt: whoever gives up waiting for it leaves no free way behind.
        state.pause = Some((now + wait, PAUSES.after(wait)));
        let opened = timeout(self.setup.patience, Session::open(&self.address, self.setup)).await;
        // An attempt may take longer than the pause: those who waited for it do not each make another.
        state.pause = Some((Instant::now() + wait, PAUSES.after(wait)));
        let session =
            Arc::new(opened.map_err(|_| StoreError::down("PostgreSQL does not answer"))?.map_err(failed)?);
        (state.session, state.pause) = (Some(Arc::clone(&session)), None);
        Ok(session)
    }

    /// Stops what runs on the connection, and returns when nothing does.
    pub(super) async fn stop(&self, address: &Address) {
        let Some(session) = self.state.lock().await.session.clone().filter(|session| !session.is_lost())
        else {
            return;
        };
        let token = session.client.cancel_token();
        let cancel = token.cancel_query(address.tls.clone());
        // What was asked last is answered last. A cancel that is not heard, or too late, changes nothing about that.
        if timeout(self.setup.patience, cancel).await.is_err() || session.run("").await.is_err() {
            session.give_up();
        }
    }

    /// Asks, and asks once more if the connection turns out to be lost: for what may be done twice.
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let session = self.session().await?;
        match session.query(sql, params).await {
            Err(error) if error.is_down() && (session.is_lost() || ends_session(&error)) => {
                session.give_up();
                self.session().await?.query(sql, params).await
            }
            result => result,
        }
    }

    /// As [`Self::query`], for at most one row.
    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, params).await?.pop())
    }
}

/// Whether it may be well again by itself.
pub(super) fn failed(error: Error) -> StoreError {
    let Some(code) = error.code() else {
        // Without a code it is the connection, but for what we ourselves got wrong in asking.
        let conversion = error.to_string().starts_with("error serializing")
            || error.to_string().starts_with("error deserializing");
        return if conversion { StoreError::broken(said(error)) } else { StoreError::down(said(error)) };
    };
    // Connection, serialisation, no room, shut down or interrupted by the server.
    let passing = ["08", "40", "53", "57", "58"].contains(&code.code().get(..2).unwrap_or_default());
    let passing = passing
        || *code == SqlState::LOCK_NOT_AVAILABLE
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
    if passing { StoreError::down(Coded::new(error)) } else { StoreError::broken(Coded::new(error)) }
}

/// What the database says, in one line.
pub(super) fn said(error: Error) -> String {
    match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => {
            let source = error.to_string();
            match error.into_source() {
                Some(why) if !source.contains(&why.to_string()) => format!("{source}: {why}"),
                _ => source,
            }
        }
    }
}

/// An error of the server with its code, for those who look at it.
#[derive(Debug, thiserror::Error)]
#[error("{message} ({})", .code.code())]
pub(super) struct Coded {
    pub(super) code: SqlState,
    message: String,
}

impl Coded {
    fn new(error: Error) -> Self {
        let code = error.code().cloned().unwrap_or(SqlState::INTERNAL_ERROR);
        Self { code, message: said(error) }
    }
}

/// The code under which the server refused.
pub(super) fn code(error: &StoreError) -> Option<&SqlState> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Coded>().map(|coded| &coded.code)
}

/// True if the server ends the session with this error. The connection may not be closed yet when it is read.
fn ends_session(error: &StoreError) -> bool {
    code(error).is_some_and(|code| {
        [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
    })
}

/// Whether others were in the way, at the same time: nothing was done, and it may be tried again.
pub(super) fn were_others(error: &StoreError) -> bool {
    code(error).is_some_and(|code| code.code().starts_with("40"))
}

/// The same error for somebody else.
pub(super) fn again(error: &StoreError) -> StoreError {
    let words = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    if error.is_down() { StoreError::down(words) } else { StoreError::broken(words) }
}

/// Tries it again as long as others were in the way.
pub(super) async fn persist<T, F>(attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut more = 1..ATTEMPTS;
    loop {
        match attempt().await {
            Err(error) if were_others(&error) && more.next().is_some() => {}
            done => return done,
        }
    }
}
