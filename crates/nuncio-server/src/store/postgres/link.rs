//! A connection that is reopened after it was lost, with back-off.

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

/// The pauses between attempts to connect.
const CONNECT_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(1));

/// The number of attempts of a transaction that conflicts with others.
pub(super) const ATTEMPTS: usize = 10;

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) durability: Durability,
    /// The timeout of a response. After it, the connection is closed.
    pub(super) patience: Duration,
    /// The timeout of a statement. After it, the server cancels the statement.
    pub(super) statement_timeout: Duration,
}

impl Setup {
    /// One timeout for responses and statements.
    pub(super) fn within(durability: Durability, patience: Duration) -> Self {
        Self { durability, patience, statement_timeout: patience }
    }
}

/// A connection and its prepared statements.
pub(super) struct PgSession {
    pub(super) client: Client,
    patience: Duration,
    /// Keyed by the address of the SQL text.
    prepared: Mutex<HashMap<usize, Statement>>,
    connection: AbortHandle,
    /// True once it was given up.
    lost: AtomicBool,
}

impl Drop for PgSession {
    fn drop(&mut self) {
        // A connection that does not respond would block on its shutdown.
        self.give_up();
    }
}

impl PgSession {
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

    /// Closes the connection: the server rolls back an open transaction.
    pub(super) fn give_up(&self) {
        self.lost.store(true, Ordering::Relaxed);
        self.connection.abort();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.client.is_closed() || self.lost.load(Ordering::Relaxed)
    }

    /// Waits for a response, with the timeout.
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

    /// The prepared statement; prepared at its first use.
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

/// The settings that every session begins with.
fn settings(Setup { durability, patience, statement_timeout }: Setup) -> String {
    let synchronous = match durability {
        Durability::Full => "on",
        Durability::Relaxed => "off",
    };
    let (millis, statement) = (patience.as_millis(), statement_timeout.as_millis());
    // Every statement of ours uses an index, even if the statistics of a new table suggest otherwise;
    // planning it once is enough.
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
    state: tokio::sync::Mutex<LinkState>,
    /// Held by the open transaction, of which there is at most one.
    turn: tokio::sync::Mutex<()>,
}

/// An open transaction. If it is dropped before its end, the connection is closed.
pub(super) struct Transaction<'a> {
    pub(super) session: Arc<PgSession>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
    open: bool,
}

impl Transaction<'_> {
    /// Says that the transaction has ended without [`Self::commit`].
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
struct LinkState {
    session: Option<Arc<PgSession>>,
    /// The time of the next attempt, and the pause after that.
    pause: Option<(Instant, Duration)>,
}

impl std::fmt::Debug for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.session.is_some() { "connected" } else { "not connected" })
    }
}

impl Link {
    pub(super) fn new(address: Arc<Address>, setup: Setup) -> Self {
        Self { address, setup, state: tokio::sync::Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Waits for exclusive use of a link with transactions, so that no statement runs within that of another
    /// caller.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Begins a transaction; only on links where every call waits for [`Self::turn`].
    pub(super) async fn begin(&self) -> Result<Transaction<'_>, StoreError> {
        let turn = self.turn().await;
        let session = self.session().await?;
        let transaction = Transaction { session, _turn: turn, open: true };
        transaction.session.run("BEGIN").await?;
        Ok(transaction)
    }

    /// The session, reopened if it is lost. Fails at once during the pause after a failed attempt.
    pub(super) async fn session(&self) -> Result<Arc<PgSession>, StoreError> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| !session.is_lost()) {
            return Ok(Arc::clone(session));
        }
        state.session = None;
        let now = Instant::now();
        let wait = match state.pause {
            Some((until, _)) if now < until => {
                return Err(StoreError::down("PostgreSQL is unreachable; waiting before the next attempt"));
            }
            Some((_, wait)) => wait,
            None => CONNECT_BACKOFF.base,
        };
        // Set before the attempt, so that the pause holds even if the caller stops waiting.
        state.pause = Some((now + wait, CONNECT_BACKOFF.after(wait)));
        let opened = timeout(self.setup.patience, PgSession::open(&self.address, self.setup)).await;
        // An attempt may take longer than the pause: callers that waited for it do not each make another.
        state.pause = Some((Instant::now() + wait, CONNECT_BACKOFF.after(wait)));
        let session =
            Arc::new(opened.map_err(|_| StoreError::down("PostgreSQL does not answer"))?.map_err(failed)?);
        (state.session, state.pause) = (Some(Arc::clone(&session)), None);
        Ok(session)
    }

    /// Cancels the running statement, and returns when nothing is running.
    pub(super) async fn stop(&self, address: &Address) {
        let Some(session) = self.state.lock().await.session.clone().filter(|session| !session.is_lost())
        else {
            return;
        };
        let token = session.client.cancel_token();
        let cancel = token.cancel_query(address.tls.clone());
        // The empty statement is answered after all earlier ones, even if the cancel request is lost or late.
        if timeout(self.setup.patience, cancel).await.is_err() || session.run("").await.is_err() {
            session.give_up();
        }
    }

    /// Runs a query, and repeats it once if the connection is lost: for statements that may run twice.
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

/// Classifies an error: the store may recover by itself, or not.
pub(super) fn failed(error: Error) -> StoreError {
    let Some(code) = error.code() else {
        // An error without a code is one of the connection, unless we failed to convert a value.
        let conversion = error.to_string().starts_with("error serializing")
            || error.to_string().starts_with("error deserializing");
        return if conversion { StoreError::broken(said(error)) } else { StoreError::down(said(error)) };
    };
    // Connection, serialization, resources, shutdown, or cancelled by the server.
    let passing = ["08", "40", "53", "57", "58"].contains(&code.code().get(..2).unwrap_or_default());
    let passing = passing
        || *code == SqlState::LOCK_NOT_AVAILABLE
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
    if passing { StoreError::down(Coded::new(error)) } else { StoreError::broken(Coded::new(error)) }
}

/// The message of the database in one line.
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

/// An error of the server with its code.
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

/// The SQLSTATE of an error of the server.
pub(super) fn code(error: &StoreError) -> Option<&SqlState> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Coded>().map(|coded| &coded.code)
}

/// True if the server ends the session with this error. The connection may still be open when it arrives.
fn ends_session(error: &StoreError) -> bool {
    code(error).is_some_and(|code| {
        [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
    })
}

/// True if the transaction conflicted with another one: nothing was done, and it may be retried.
pub(super) fn were_others(error: &StoreError) -> bool {
    code(error).is_some_and(|code| code.code().starts_with("40"))
}

/// A copy of the error for another caller.
pub(super) fn again(error: &StoreError) -> StoreError {
    let words = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    if error.is_down() { StoreError::down(words) } else { StoreError::broken(words) }
}

/// Repeats an operation while it conflicts with others.
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
