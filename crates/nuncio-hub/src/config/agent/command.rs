//! Programs, started once for each message: `command`.

use std::{
    collections::BTreeMap,
    fmt,
    path::{MAIN_SEPARATOR, Path, PathBuf},
    time::Duration,
};

use nuncio_server::{DEFAULT_PACE, EarlierLimit};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{Agent, AgentKind, command_line, kinds::KindKeys};
use crate::config::form::{FilePath, Form, Millis, Opt, SecondsOrNever, SecretText, placed};

/// A program: its command line, its format, and its limits.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(default = "Command::nothing", deny_unknown_fields)]
pub struct Command {
    /// A program: a line, split at spaces as by a shell (none is started), or a list of words. It is started
    /// once for each message.
    #[serde(rename = "command")]
    #[schemars(example = "./my-agent --fast")]
    pub line: CommandLine,
    /// text: standard input gets the text of the message, standard output is text. json: JSON lines both
    /// ways.
    pub format: Format,
    /// Working directory; default: that of the hub.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = &"work")]
    pub directory: Option<PathBuf>,
    /// Environment variables: a text, or { file = "…" }.
    #[serde(rename = "env")]
    #[schemars(with = "BTreeMap<String, SecretText>", example = BTreeMap::from([("MODE", "fast")]))]
    pub environment: Environment,
    /// Environment variables of the hub that it inherits.
    #[serde(rename = "env_allow")]
    pub inherit: Vec<String>,
    /// Maximum run time in seconds, of a program or of the tools of a model; 0: no limit. Default: 3600, for a model 600.
    #[serde(rename = "time_limit_seconds", with = "SecondsOrNever")]
    #[schemars(example = 3600)]
    pub time_limit: Option<Duration>,
    /// Maximum output in bytes.
    #[serde(rename = "output_limit_bytes")]
    #[schemars(range(min = 1))]
    pub output_limit: u64,
    /// Maximum memory in bytes, as far as the system enforces it.
    #[serde(rename = "memory_limit_bytes")]
    #[schemars(example = 1073741824, range(min = 1))]
    pub memory_limit: Option<u64>,
    /// Maximum number of runs at a time; further messages wait.
    #[serde(rename = "max_concurrent")]
    #[schemars(with = "u32", range(min = 1))]
    pub processes: usize,
    /// Minimum time between two pieces of streamed text, in milliseconds; default: 100.
    #[serde(rename = "pace_ms", with = "Millis")]
    #[schemars(example = 100, range(min = 20, max = 1000))]
    pub pace: Duration,
    /// Maximum number of earlier turns of the conversation in the input of a program that speaks JSON; 0: none.
    #[serde(rename = "earlier_limit_turns")]
    #[schemars(with = "u32", range(max = 1000))]
    pub earlier_turns: usize,
    /// Maximum size of these turns, in bytes.
    #[serde(rename = "earlier_limit_bytes")]
    #[schemars(with = "u32", range(min = 1, max = 8388608))]
    pub earlier_bytes: usize,
    /// Maximum length of a line of JSON in bytes.
    #[serde(skip)]
    pub line_limit: usize,
    /// Time between the request to end and the kill; also the time for which processes that it has started
    /// may hold its output open after its end.
    #[serde(skip)]
    pub grace: Duration,
}

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// The program: a name to be found in `PATH`, or a path relative to the hub's working directory.
    pub program: String,
    pub arguments: Vec<String>,
}

/// A program and its arguments.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "CommandLine")]
enum WrittenLine {
    /// As typed in a shell.
    Line(String),
    /// As a list of words.
    Words(Vec<String>),
}

impl JsonSchema for CommandLine {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        WrittenLine::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WrittenLine::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (folder, written): (PathBuf, WrittenLine) = placed(deserializer)?;
        let words = match written {
            WrittenLine::Line(line) => command_line::split(&line).map_err(D::Error::custom)?,
            WrittenLine::Words(words) => words,
        };
        let mut line = Self::new(words);
        // A bare name is looked up in PATH.
        if line.program.contains(['/', MAIN_SEPARATOR]) && !Path::new(&line.program).is_absolute() {
            line.program = folder.join(line.program).to_string_lossy().into_owned();
        }
        Ok(line)
    }
}

impl CommandLine {
    fn new(words: impl IntoIterator<Item = String>) -> Self {
        let mut words = words.into_iter();
        Self { program: words.next().unwrap_or_default(), arguments: words.collect() }
    }
}

/// The format of standard input and output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    // Text in, text out.
    #[default]
    Text,
    // A JSON object per line.
    Json,
}

impl KindKeys for Command {
    const KEY: &'static str = "command";
    const EXAMPLE: &'static str = "coder";

    fn into_kind(self, _: &Agent) -> Result<AgentKind, String> {
        self.validate()?;
        Ok(AgentKind::Command(Box::new(self)))
    }
}

/// Variables and their values. Values are never printed: some are secrets.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let variables = BTreeMap::<String, SecretText>::deserialize(deserializer)?;
        let reveal = |(name, text): (String, SecretText)| (name, text.into_secret().reveal().to_owned());
        Ok(Self(variables.into_iter().map(reveal).collect()))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Command {
    /// Variables of the hub's environment that a program inherits by default.
    pub const INHERIT: &[&str] = &["PATH", "HOME", "LANG", "TZ"];

    /// Defaults of every key for the schema and for serde. The program itself is always set: it determines
    /// the kind.
    fn nothing() -> Self {
        Self::new(Format::default(), "", [])
    }

    /// This program with its arguments, and the defaults of every other key.
    pub fn new(
        format: Format,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            line: CommandLine { program: program.into(), arguments: arguments.into_iter().collect() },
            format,
            directory: None,
            inherit: Self::INHERIT.iter().map(|&name| name.to_owned()).collect(),
            environment: Environment::default(),
            // A program that hangs holds one of the permits.
            time_limit: Some(Duration::from_secs(60 * 60)),
            // As much as a caller may send.
            output_limit: 16 * 1024 * 1024,
            line_limit: 1024 * 1024,
            memory_limit: None,
            // Less than the runtime's grace for a canceled executor.
            grace: Duration::from_secs(4),
            processes: 32,
            pace: DEFAULT_PACE,
            earlier_turns: EarlierLimit::default().turns,
            earlier_bytes: EarlierLimit::default().bytes,
        }
    }

    /// A program and its arguments, quoted as for a shell. No shell is started.
    ///
    /// # Errors
    /// Describes the mistake in the text.
    #[cfg(test)]
    fn parse(format: Format, line: &str) -> Result<Self, String> {
        let line = CommandLine::new(command_line::split(line)?);
        let command = Self { format, line, ..Self::nothing() };
        command.validate().map(|()| command)
    }

    /// Checks the settings without files and network.
    ///
    /// # Errors
    /// Describes the mistake, and the remedy.
    pub fn validate(&self) -> Result<(), String> {
        let CommandLine { program, arguments } = &self.line;
        if program.is_empty() {
            return Err("the command is empty; expected a program and its arguments".to_owned());
        }
        let mut texts = std::iter::once(program).chain(arguments).chain(self.environment.0.values());
        if texts.any(|text| text.contains('\0')) {
            return Err("neither a command nor a variable can hold the character 0".to_owned());
        }
        let names = self.environment.0.keys().chain(&self.inherit);
        if names.into_iter().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(
                "the name of a variable is empty or contains =; expected one such as TOKEN".to_owned()
            );
        }
        if is_assignment(program) {
            return Err(
                "the command begins with a variable, and no shell is started; set it in env".to_owned()
            );
        }
        for (name, is_zero) in [
            ("the time limit", self.time_limit.is_some_and(|limit| limit.is_zero())),
            ("the output limit", self.output_limit == 0),
            ("the line limit", self.line_limit == 0),
            ("the memory limit", self.memory_limit == Some(0)),
            ("the number of processes", self.processes == 0),
        ] {
            if is_zero {
                return Err(format!("{name} is 0: no program could run; expected 1 or more"));
            }
        }
        if self.memory_limit.is_some() && !cfg!(target_os = "linux") {
            return Err("a memory limit needs Linux".to_owned());
        }
        Ok(())
    }
}

/// True for `NAME=value`, which a shell would accept before a program.
fn is_assignment(program: &str) -> bool {
    program.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_its_arguments() {
        let command = Command::parse(Format::Json, "./my-agent --name 'two words'").unwrap();
        let expected = Command::new(Format::Json, "./my-agent", ["--name", "two words"].map(str::to_owned));
        assert_eq!(command, expected);
        assert!(Command::parse(Format::Text, "a | b").unwrap_err().contains("no shell is started"));
        assert!(Command::parse(Format::Text, "a b\0").unwrap_err().contains("character 0"));
    }

    #[test]
    fn bounds_and_names_that_make_no_sense() {
        let check = |change: fn(&mut Command), expected: &str| {
            let mut command = Command::parse(Format::Text, "cat").unwrap();
            change(&mut command);
            let error = command.validate().err().unwrap_or_default();
            assert!(
                error.contains(expected) && error.is_empty() == expected.is_empty(),
                "{expected}: {error}"
            );
        };
        check(|_| {}, "");
        check(|command| command.time_limit = None, "");
        check(|command| command.grace = Duration::ZERO, "");
        check(|command| command.line.program.clear(), "expected a program");
        check(|command| command.time_limit = Some(Duration::ZERO), "the time limit is 0");
        check(|command| command.output_limit = 0, "the output limit is 0");
        check(|command| command.line_limit = 0, "the line limit is 0");
        check(|command| command.memory_limit = Some(0), "the memory limit is 0");
        check(|command| command.processes = 0, "the number of processes is 0");
        check(
            |command| command.inherit = vec!["A=B".to_owned()],
            "the name of a variable is empty or contains =",
        );
        check(
            |command| drop(command.environment.0.insert(String::new(), String::new())),
            "the name of a variable is empty",
        );
        check(|command| command.line.program = "KEY=s3cret".to_owned(), "begins with a variable");
    }

    #[test]
    fn values_of_variables_are_not_printed() {
        let mut command = Command::parse(Format::Text, "cat").unwrap();
        command.environment.0.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let printed = format!("{command:?}");
        assert!(printed.contains("TOKEN") && !printed.contains("hunter2"), "{printed}");
    }
}
