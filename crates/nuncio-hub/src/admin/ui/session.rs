//! Sessions of the dashboard, on the server: a browser holds a random id, and everything else is here.
//!
//! A session begins with the admin token or with a one-time code that `nuncio ui` asked for with the token. It ends
//! after twelve hours, at sign-out, when its token is revoked, and with the process. Every start of a hub makes a new token or reads the
//! operator's, so no session outlives the token that it began with.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use aws_lc_rs::{constant_time, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

use crate::admin::{caller::AdminCaller, problem::AdminProblem};

/// Lifetime of a session.
pub(in crate::admin) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Lifetime of a one-time code.
pub(in crate::admin) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of sessions; the oldest ends when another begins.
const MAX_SESSIONS: usize = 256;
/// Maximum number of codes at a time; the oldest ends when another is made.
const MAX_CODES: usize = 32;
/// Maximum number of tasks whose content a session shows at a time.
const MAX_OPENED: usize = 64;
/// Number of random bytes of ids, codes and form tokens.
const SECRET_BYTES: usize = 32;

type Digest = [u8; 32];

/// All sessions and one-time codes of a hub.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<Digest, Arc<Session>>>,
    codes: Mutex<HashMap<Digest, Code>>,
}

/// A one-time code: who has asked for it, and its end.
struct Code {
    caller: AdminCaller,
    ends: Instant,
}

/// A session of a browser.
pub(super) struct Session {
    key: Digest,
    caller: AdminCaller,
    form_token: String,
    ends: Instant,
    notice: Mutex<Option<Notice>>,
    opened: Mutex<VecDeque<String>>,
}

/// The outcome of an action, shown on the next page and then no more.
#[derive(Clone, Default)]
pub(super) struct Notice {
    pub(super) text: String,
    /// The secret of a new key.
    pub(super) secret: Option<String>,
}

impl Sessions {
    /// Makes a code that begins one session within [`CODE_LIFETIME`].
    pub(in crate::admin) fn create_code(&self, caller: AdminCaller) -> Result<String, AdminProblem> {
        let code = secret()?;
        let mut codes = self.codes.lock();
        let now = Instant::now();
        codes.retain(|_, code| code.ends > now);
        evict(&mut codes, MAX_CODES, |code| code.ends);
        codes.insert(digest_of(&code), Code { caller, ends: now + CODE_LIFETIME });
        Ok(code)
    }

    /// Takes a code, and returns who has asked for it; `None` if there is none such, or its time is over.
    pub(super) fn redeem(&self, code: &str) -> Option<AdminCaller> {
        let code = self.codes.lock().remove(&digest_of(code))?;
        (code.ends > Instant::now()).then_some(code.caller)
    }

    /// Begins a session, and returns the id for the browser's cookie.
    pub(super) fn begin(&self, caller: AdminCaller) -> Result<String, AdminProblem> {
        let id = secret()?;
        let session = Session {
            key: digest_of(&id),
            caller,
            form_token: secret()?,
            ends: Instant::now() + SESSION_LIFETIME,
            notice: Mutex::default(),
            opened: Mutex::default(),
        };
        let mut open = self.open.lock();
        let now = Instant::now();
        open.retain(|_, session| session.ends > now);
        evict(&mut open, MAX_SESSIONS, |session| session.ends);
        open.insert(session.key, Arc::new(session));
        Ok(id)
    }

    /// The session of this id, if it has not ended.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.open.lock().get(&digest_of(id)).cloned();
        session.filter(|session| session.ends > Instant::now() && !session.caller.revoked.is_cancelled())
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &Session) {
        self.open.lock().remove(&session.key);
    }
}

impl Session {
    /// The operator or viewer whose token began the session.
    pub(super) fn caller(&self) -> &AdminCaller {
        &self.caller
    }

    /// The token that every form of this session sends.
    pub(super) fn form_token(&self) -> &str {
        &self.form_token
    }

    pub(super) fn is_form_token(&self, given: &str) -> bool {
        constant_time::verify_slices_are_equal(self.form_token.as_bytes(), given.as_bytes()).is_ok()
    }

    pub(super) fn set_notice(&self, notice: Notice) {
        *self.notice.lock() = Some(notice);
    }

    pub(super) fn take_notice(&self) -> Option<Notice> {
        self.notice.lock().take()
    }

    /// Shows the content of a task from now on.
    pub(super) fn open(&self, task: &str) {
        let mut opened = self.opened.lock();
        opened.retain(|other| other != task);
        if opened.len() == MAX_OPENED {
            opened.pop_front();
        }
        opened.push_back(task.to_owned());
    }

    /// Hides the content of a task.
    pub(super) fn close(&self, task: &str) {
        self.opened.lock().retain(|other| other != task);
    }

    pub(super) fn has_opened(&self, task: &str) -> bool {
        self.opened.lock().iter().any(|other| other == task)
    }
}

/// Makes room for one more.
fn evict<T>(entries: &mut HashMap<Digest, T>, max: usize, ends: impl Fn(&T) -> Instant) {
    if entries.len() >= max
        && let Some(oldest) = entries.iter().min_by_key(|(_, entry)| ends(entry)).map(|(key, _)| *key)
    {
        entries.remove(&oldest);
    }
}

/// The key of a secret: a lookup by the secret itself would tell by its duration how good a guess was.
fn digest_of(secret: &str) -> Digest {
    let mut key = [0; 32];
    key.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
    key
}

fn secret() -> Result<String, AdminProblem> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| {
        tracing::error!("the system gives no random bytes");
        AdminProblem::internal()
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::admin::api::Role;

    fn caller() -> AdminCaller {
        AdminCaller { role: Role::Operator, name: None, revoked: CancellationToken::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_begins_one_session_within_a_minute() {
        let sessions = Sessions::default();
        let code = sessions.create_code(caller()).unwrap();
        assert!(sessions.redeem("guessed").is_none());
        assert!(sessions.redeem(&code).is_some());
        assert!(sessions.redeem(&code).is_none(), "a code is used once");
        let late = sessions.create_code(caller()).unwrap();
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(sessions.redeem(&late).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_after_its_lifetime_or_when_it_is_ended() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.begin(caller()).unwrap(), sessions.begin(caller()).unwrap());
        let session = sessions.find(&one).unwrap();
        assert!(sessions.find("guessed").is_none());
        assert!(!session.is_form_token(sessions.find(&other).unwrap().form_token()));
        sessions.end(&session);
        assert!(sessions.find(&one).is_none());
        assert!(sessions.find(&other).is_some());
        tokio::time::advance(SESSION_LIFETIME).await;
        assert!(sessions.find(&other).is_none());
    }

    #[tokio::test]
    async fn sessions_codes_and_opened_tasks_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.begin(caller()).unwrap();
        for _ in 0..MAX_SESSIONS {
            sessions.begin(caller()).unwrap();
        }
        assert!(sessions.find(&first).is_none(), "the oldest made room");
        let code = sessions.create_code(caller()).unwrap();
        for _ in 0..MAX_CODES {
            sessions.create_code(caller()).unwrap();
        }
        assert!(sessions.redeem(&code).is_none(), "the oldest made room");
        let last = sessions.begin(caller()).unwrap();
        let session = sessions.find(&last).unwrap();
        for task in 0..=MAX_OPENED {
            session.open(&task.to_string());
        }
        assert!(!session.has_opened("0"));
        assert!(session.has_opened("1"));
        session.close("1");
        assert!(!session.has_opened("1"));
    }

    #[tokio::test]
    async fn a_session_ends_with_its_token() {
        let sessions = Sessions::default();
        let (revoked, other) = (caller(), caller());
        let (one, kept) = (sessions.begin(revoked.clone()).unwrap(), sessions.begin(other).unwrap());
        revoked.revoked.cancel();
        assert!(sessions.find(&one).is_none());
        assert!(sessions.find(&kept).is_some());
    }

    #[tokio::test]
    async fn a_notice_is_shown_once() {
        let sessions = Sessions::default();
        let session = sessions.find(&sessions.begin(caller()).unwrap()).unwrap();
        session.set_notice(Notice { text: "done".to_owned(), secret: None });
        assert_eq!(session.take_notice().map(|notice| notice.text), Some("done".to_owned()));
        assert!(session.take_notice().is_none());
    }
}
