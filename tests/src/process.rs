//! Programs that the tests start. Each ends with the test that started it, whatever happens.

use std::process::{ExitStatus, Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
};

use crate::within;

/// A program that runs beside the test.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// `None` once nobody reads it any more.
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    /// Its standard error so far.
    stderr: watch::Receiver<String>,
}

impl Process {
    /// Starts a program with nothing on its stdin.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = Some(BufReader::new(child.stdout.take().expect("stdout is piped")).lines());
        let stderr = gather(child.stderr.take().expect("stderr is piped"));
        Self { child, stdout, stderr }
    }

    /// The next line of its stdout; `None` when there are no more.
    ///
    /// # Panics
    /// When nothing comes.
    pub async fn line(&mut self) -> Option<String> {
        within("a line", self.stdout.as_mut()?.next_line()).await.unwrap()
    }

    /// The lines of its stdout that are left.
    pub async fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.line().await {
            lines.push(line);
        }
        lines
    }

    /// Reads no more of its stdout: the next that it writes breaks the pipe.
    pub fn hang_up(&mut self) {
        self.stdout = None;
    }

    /// Waits until it has written this to stderr.
    ///
    /// # Panics
    /// When it does not.
    pub async fn says(&self, text: &str) {
        let mut stderr = self.stderr.clone();
        let said = within(text, stderr.wait_for(|stderr| stderr.contains(text))).await.is_ok();
        assert!(said, "it ended without saying {text:?}: {}", self.stderr());
    }

    /// Its standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.borrow().clone()
    }

    /// The number by which the system knows it.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends it a signal, such as `TERM`.
    ///
    /// # Panics
    /// When it has ended.
    pub async fn signal(&self, name: &str) {
        let pid = self.id();
        // The shell's own, because not every system has a program of that name.
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().await.unwrap();
        assert!(status.success(), "kill -{name} {pid}");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn end(&mut self) -> ExitStatus {
        within("the end of the program", self.child.wait()).await.unwrap()
    }
}

/// Reads everything, so that the writer never waits for us.
fn gather(from: impl AsyncRead + Unpin + Send + 'static) -> watch::Receiver<String> {
    let (sender, receiver) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            sender.send_modify(|text| {
                text.push_str(&line);
                text.push('\n');
            });
        }
    });
    receiver
}

/// The outcome of a program that was run to its end.
#[derive(Debug)]
pub struct Output {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a program to its end, with this on its stdin.
///
/// # Panics
/// When it cannot be started or does not end.
pub async fn run(mut command: Command, stdin: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take().expect("stdin is piped");
    let text = stdin.to_owned();
    let writing = tokio::spawn(async move {
        // A program that does not read its stdin is free to.
        let _ = input.write_all(text.as_bytes()).await;
    });
    let output = within("the end of the program", child.wait_with_output()).await.unwrap();
    writing.abort();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is text"),
        stderr: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}
