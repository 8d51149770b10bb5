//! The stories of the README, as they stand there: each block that is marked as part of one is taken from it and
//! typed, command by command, into a shell. What a test expects has a row for each command, so that neither can
//! change without the other.

use std::{fs, net::SocketAddr, path::PathBuf};

use nuncio_tests::{
    hub::{binary, free_address, root},
    process::{self, Output, Process},
    provider::Provider,
};
use tokio::process::Command;

use crate::{directory, path};

/// A command and its expected outcome.
struct Step {
    /// The beginning of the command.
    command: &'static str,
    /// Its exit code; `None` if it goes on beside the others.
    code: Option<i32>,
    /// Texts of its output, on stdout or stderr.
    says: &'static [&'static str],
    /// Texts that its output must not contain.
    hides: &'static [&'static str],
}

const fn ends(command: &'static str, code: i32, says: &'static [&'static str]) -> Step {
    Step { command, code: Some(code), says, hides: &[] }
}

/// It stays, and has said this.
const fn stays(command: &'static str, says: &'static [&'static str]) -> Step {
    Step { command, code: None, says, hides: &[] }
}

/// The agent that the README shows is the example that is compiled.
#[test]
fn the_readme_shows_the_example_agent() {
    let [readme, example] =
        ["README.md", "examples/src/bin/agent.rs"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let (_, block) = readme.split_once("```rust\n").unwrap();
    let (shown, _) = block.split_once("```").unwrap();
    let (_, code) = example.split_once('\n').unwrap();
    assert_eq!(shown, code);
}

/// The commands of a story, in the order of the README.
fn commands(story: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let marked = format!("<!-- story: {story} -->\n```sh\n");
    let mut commands = Vec::new();
    for block in readme.split(&*marked).skip(1) {
        let (block, _) = block.split_once("\n```").unwrap();
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let mut command = line.to_owned();
            while command.ends_with('\\') {
                command = format!("{command}\n{}", lines.next().unwrap());
            }
            if line.contains("<<'EOF'") {
                for line in lines.by_ref() {
                    command = format!("{command}\n{line}");
                    if line == "EOF" {
                        break;
                    }
                }
            }
            commands.push(command);
        }
    }
    assert!(!commands.is_empty(), "the README has no block of the story {story}");
    commands
}

/// A shell in a folder of its own, on ports of its own.
struct Terminal {
    folder: PathBuf,
    hub: SocketAddr,
    admin: SocketAddr,
    agent: SocketAddr,
    receiver: SocketAddr,
    /// The provider of a model.
    provider: SocketAddr,
    /// Hubs, the last one last.
    hubs: Vec<Process>,
    /// Events outside of the commands.
    others: Vec<Process>,
    /// The task that was told of last.
    task: String,
}

impl Terminal {
    fn open(name: &str) -> Self {
        let folder = directory(&format!("story-{name}"));
        // Called by its name, as somebody does who has installed it.
        let program = folder.join("bin").join("nuncio");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(binary(), program).unwrap();
        let (hub, admin, agent, receiver) = (free_address(), free_address(), free_address(), free_address());
        Self {
            folder,
            hub,
            admin,
            agent,
            receiver,
            provider: free_address(),
            hubs: Vec::new(),
            others: Vec::new(),
            task: String::new(),
        }
    }

    /// The same command on the ports of this test, about the task that was told of, and in less time.
    fn here(&self, command: &str) -> String {
        let ports = [
            (2602, self.hub),
            (2603, self.admin),
            (2604, self.receiver),
            (2702, self.agent),
            (11434, self.provider),
        ];
        // In two steps: a port of this test may begin as one of the usual ports does.
        let here = ports.iter().fold(command.to_owned(), |here, (usual, _)| {
            here.replace(&format!("127.0.0.1:{usual}"), &format!("<{usual}>"))
        });
        let here = ports
            .iter()
            .fold(here, |here, (usual, own)| here.replace(&format!("<{usual}>"), &own.to_string()));
        let listen = format!("nuncio listen --listen {}", self.receiver);
        here.replace("nuncio listen", &listen)
            .replace("TASK_ID", &self.task)
            .replace("report 30 ", "report 6 ")
    }

    /// Types this; variables that it sets are there afterwards.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let script = format!(
            "set -a; [ ! -f .variables ] || . ./.variables\n{command}\ncode=$?; export -p > .variables; exit $code"
        );
        let programs = std::env::var("PATH").unwrap();
        shell
            .args(["-c", &script])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", format!("{}:{programs}", path(&self.folder.join("bin"))))
            .env("HOME", &self.folder)
            .env("NUNCIO_LISTEN", self.hub.to_string())
            .env("NUNCIO_ADMIN_LISTEN", self.admin.to_string())
            .env("NUNCIO_ADMIN", format!("http://{}", self.admin));
        shell
    }

    async fn step(&mut self, command: &str, expected: &Step) {
        assert!(
            command.starts_with(expected.command),
            "expected {}, the README has {command}",
            expected.command
        );
        let here = self.here(command.split(" # ").next().unwrap().trim_end());
        let Some(code) = expected.code else {
            return self.leave_running(&here, expected).await;
        };
        let killed = if here.contains("$!") { self.hubs.pop() } else { None };
        let last = killed.as_ref().map(|hub| hub.id().to_string()).unwrap_or_default();
        let here = here.replace("$!", &last);
        let output = process::run(self.shell(&here), "").await;
        assert_eq!(output.code, Some(code), "{here}: {output:?}");
        self.compare(&here, expected, &output);
        if let Some(mut hub) = killed {
            hub.end().await;
        }
    }

    fn compare(&mut self, command: &str, expected: &Step, output: &Output) {
        let said = format!("{}{}", output.stdout, output.stderr);
        for words in expected.says {
            let words = self.here(words);
            assert!(said.contains(&words), "{command}: expected {words:?} in {output:?}");
        }
        for words in expected.hides {
            assert!(!said.contains(words), "{command}: {words:?} is in {output:?}");
        }
        if command.contains("--no-wait") {
            self.task = output.stdout.trim_end().to_owned();
        }
    }

    /// A program that stays becomes the shell, so that what is sent to the one reaches the other.
    async fn leave_running(&mut self, command: &str, expected: &Step) {
        let command = command.trim_end_matches(" &");
        let serves = command.contains("nuncio serve");
        let command = match command.rsplit_once("nuncio serve") {
            Some((before, options)) => format!("{before}exec nuncio serve{options} 1>&2"),
            None => format!("exec {command}"),
        };
        let process = Process::start(self.shell(&command));
        if serves {
            process.says("Ctrl-C stops").await;
        }
        for words in expected.says {
            process.says(&self.here(words)).await;
        }
        if serves { self.hubs.push(process) } else { self.others.push(process) }
    }

    /// Types a story.
    async fn play(&mut self, story: &str, steps: &[Step]) {
        let commands = commands(story);
        assert_eq!(commands.len(), steps.len(), "a row for each command of {story}: {commands:#?}");
        for (command, step) in commands.iter().zip(steps) {
            self.step(command, step).await;
        }
    }
}

/// A terminal beside an existing agent.
async fn beside_an_agent(story: &str) -> Terminal {
    let mut terminal = Terminal::open(story);
    terminal.play("agent", &[stays("nuncio serve --demo", &["echo", "slow", "conformance"])]).await;
    terminal
}

#[tokio::test(flavor = "multi_thread")]
async fn bridge_versions() {
    let mut terminal = Terminal::open("S1");
    let versions = &[
        "\"protocolBinding\": \"GRPC\"",
        "\"protocolBinding\": \"JSONRPC\"",
        "\"protocolBinding\": \"HTTP+JSON\"",
        "\"protocolVersion\": \"1.0\"",
        "\"protocolVersion\": \"0.3\"",
    ];
    let started = &[
        "card  http://127.0.0.1:2602/agents/billing/.well-known/agent-card.json",
        "try   nuncio send http://127.0.0.1:2602/agents/billing \"hello\"\n",
        "the agent answers",
    ];
    const OPEN: &str = "Invoices 17 and 23 are open.";
    let steps = [
        ends("cat > invoices.py", 0, &[]),
        stays("python3 invoices.py", &[]),
        stays("nuncio serve --agent billing=", started),
        ends("nuncio card get", 0, versions),
        ends("nuncio send", 0, &[OPEN, "completed"]),
        ends("nuncio send", 0, &[OPEN, "completed"]),
        ends("nuncio task list", 0, &["completed", "2 of 2 tasks"]),
        ends("curl", 0, &["\"kind\":\"task\"", "\"state\":\"completed\"", OPEN]),
        ends("curl", 0, &["\"task\":{", "\"state\":\"TASK_STATE_COMPLETED\"", OPEN]),
    ];
    terminal.play("S1", &steps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_front_door() {
    let mut terminal = beside_an_agent("S2").await;
    let steps = [
        ends("nuncio init", 0, &["nuncio.toml\n", "nuncio.schema.json\n"]),
        ends("cat >> nuncio.toml", 0, &[]),
        stays(
            "nuncio check && nuncio serve",
            &["no problems found", "agents/billing", "agents/search", "configured by"],
        ),
        ends("export NUNCIO_KEY=$(nuncio key create", 0, &["not shown again"]),
        Step {
            hides: &["search", "conformance"],
            ..ends("curl -s http://127.0.0.1:2602/agents ", 0, &["billing"])
        },
        ends("nuncio send http://127.0.0.1:2602/agents/billing", 0, &["hello\n"]),
        ends("nuncio send http://127.0.0.1:2602/agents/search", 3, &["there is nothing at"]),
        ends("NUNCIO_KEY=wrong nuncio send", 4, &["401"]),
        ends("cat >> nuncio.toml", 0, &[]),
        ends("nuncio config reload", 0, &[]),
        ends("nuncio send http://127.0.0.1:2602/agents/clerk", 0, &["hello\n"]),
        ends("nuncio trail", 0, &["agent-denied", "credentials-refused", "key-created"]),
        ends("unset NUNCIO_KEY", 0, &[]),
    ];
    terminal.play("S2", &steps).await;
}

/// The hub is killed while the task is under way; who watches sees every step once, and the receiver, which comes
/// only then, gets all that it is owed.
#[tokio::test(flavor = "multi_thread")]
async fn long_tasks_with_callbacks() {
    let mut terminal = beside_an_agent("S3").await;
    let steps = [
        stays("nuncio serve --agent report=", &["tasks are kept in story.db"]),
        ends("nuncio send", 0, &[]),
        stays("nuncio task watch", &["working"]),
        ends("kill -9 $!", 0, &[]),
        stays("nuncio serve --agent report=", &["a task of a stopped server was adopted and continues"]),
        ends("nuncio listen", 0, &["submitted", "working", "artifact countdown: 6", "completed"]),
        ends("nuncio delivery list", 0, &["delivered", "5 deliveries"]),
    ];
    terminal.play("S3", &steps).await;
    let mut watcher = terminal.others.pop().unwrap();
    assert_eq!(watcher.lines().await.concat(), "6 5 4 3 2 1 done", "{}", watcher.stderr());
    assert!(watcher.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_as_an_agent() {
    let mut terminal = Terminal::open("S7");
    let steps = [
        ends("cat > clerk.sh", 0, &[]),
        stays("nuncio serve --agent words=cmd:", &["agents/words", "agents/clerk"]),
        ends("nuncio send", 0, &["5\n", "completed"]),
        ends("nuncio send", 0, &["working: looking", "two invoices are open", "completed"]),
    ];
    terminal.play("S7", &steps).await;
}

/// The message comes before the agent, which has no address.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_an_address() {
    let mut terminal = beside_an_agent("S4").await;
    let steps = [
        stays("nuncio serve --data", &["tasks are kept in post.db"]),
        ends("nuncio mailbox create coder", 0, &["the key of mailbox coder"]),
        ends("nuncio send", 0, &[]),
        ends("nuncio mailbox show coder", 0, &["waits until"]),
        stays("nuncio connect coder", &["begins"]),
        ends("nuncio task watch", 0, &["3 2 1 done", "completed"]),
        ends("nuncio send", 0, &["2 1 done", "completed"]),
    ];
    terminal.play("S4", &steps).await;
}

/// The provider is one of the tests, in place of the reader's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_as_an_agent() {
    let provider = Provider::start(&[("Hello Ann", true), ("Your name is Ann", true)]).await;
    let mut terminal = Terminal { provider: provider.address(), ..Terminal::open("S6") };
    let steps = [
        stays("nuncio serve --agent writer=openai:", &["agents/writer"]),
        ends("nuncio send", 0, &["Hello Ann", "completed"]),
        ends("nuncio send", 0, &["Your name is Ann", "completed"]),
    ];
    terminal.play("S6", &steps).await;
    let turns: Vec<String> =
        provider.prompts()[1].as_array().unwrap().iter().map(|turn| turn["content"].to_string()).collect();
    assert_eq!(turns, ["\"My name is Ann.\"", "\"Hello Ann\"", "\"What is my name?\""]);
}

/// Two hubs that each take the other's agent for theirs.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_would_go_round_in_a_circle_are_refused() {
    let terminal = Terminal::open("circle");
    let (there, here) = (terminal.hub, terminal.agent);
    let serve = |name: &str, listen: SocketAddr, upstream: String| {
        let listen = format!("--listen {listen} --admin off");
        Process::start(terminal.shell(&format!("exec nuncio serve --agent {name}={upstream} {listen} 1>&2")))
    };
    let first = serve("x", there, format!("http://{here}/agents/y"));
    let second = serve("y", here, format!("http://{there}/agents/x"));
    for hub in [&first, &second] {
        hub.says("Ctrl-C stops").await;
        hub.says("the agent answers").await;
    }
    for (options, code) in [("", 6), ("--stream", 6), ("--a2a-version 0.3", 6), ("--binding rest", 6)] {
        let send = format!("nuncio send http://{there}/agents/x hello {options}");
        let output = process::run(terminal.shell(&send), "").await;
        assert_eq!(output.code, Some(code), "{send}: {output:?}");
        assert!(output.stderr.contains("the call goes round in a circle"), "{send}: {output:?}");
    }
    // One refusal a call, at each hub: nothing goes on behind it.
    for hub in [&first, &second] {
        let refused = hub.stderr().matches("goes round in a circle").count();
        assert!(refused <= 4, "{}", hub.stderr());
    }
}

#[test]
fn commands_are_taken_from_the_readme_as_a_shell_reads_them() {
    let front_door = commands("S2");
    assert!(front_door[1].starts_with("cat >> nuncio.toml <<'EOF'\n") && front_door[1].ends_with("\nEOF"));
    assert!(commands("S1").iter().any(|command| command.contains("-d \\\n  '{")));
}
