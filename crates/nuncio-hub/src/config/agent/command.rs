//! A program that is run for each message.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::words;

/// What is run, how it is spoken to, and within which bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The program: looked for in `PATH`, or a path, which is relative to the hub's working directory.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What is said on its standard input and output.
    pub format: Format,
    /// Where it runs; `None`: where the hub does.
    pub directory: Option<PathBuf>,
    /// The variables of the hub's own environment that it sees.
    pub inherit: Vec<String>,
    /// Further variables, in place of those of the same name.
    pub environment: Environment,
    /// How long it may run; `None`: for ever.
    pub time_limit: Option<Duration>,
    /// The most bytes it may write to its standard output.
    pub output_limit: u64,
    /// The most bytes in one line of JSON.
    pub line_limit: usize,
    /// The most bytes of address space of each of its processes; `None`: as many as the system allows.
    pub memory_limit: Option<u64>,
    /// How long it may take to end when it is asked to, before it is killed; and how long whatever it has
    /// started may hold its output open when it has ended.
    pub grace: Duration,
    /// The most of them that run at a time; further messages wait.
    pub processes: usize,
    /// What the card says it does; `None`: that it runs the program.
    pub description: Option<String>,
    /// What the card says it is good for.
    pub tags: Vec<String>,
}

/// What is said on standard input and output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Text in, text out.
    Text,
    /// A JSON object per line.
    Json,
}

/// Variables and their values. Some are secrets, so none is printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Command {
    /// What a program sees of the hub's environment when nothing is said.
    pub const INHERIT: &[&str] = &["PATH", "HOME", "LANG", "TZ"];

    /// This program with its arguments, and everything else as usual.
    pub fn new(
        format: Format,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            format,
            directory: None,
            inherit: Self::INHERIT.iter().map(|&name| name.to_owned()).collect(),
            environment: Environment::default(),
            // Whatever hangs holds one of the processes.
            time_limit: Some(Duration::from_secs(60 * 60)),
            // As much as a caller may send.
            output_limit: 16 * 1024 * 1024,
            line_limit: 1024 * 1024,
            memory_limit: None,
            // Less than the runtime gives an executor that is canceled.
            grace: Duration::from_secs(4),
            processes: 32,
            description: None,
            tags: Vec::new(),
        }
    }

    /// What stands behind `cmd:` or `cmd+json:`: a program and its arguments, quoted as for a shell. No
    /// shell is started.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(format: Format, line: &str) -> Result<Self, String> {
        let mut words = words::split(line)?.into_iter();
        let program = words.next().unwrap_or_default();
        let command = Self::new(format, program, words);
        command.validate().map(|()| command)
    }

    /// Checks what can be checked without touching the world.
    ///
    /// # Errors
    /// Says what is wrong and what to do.
    pub fn validate(&self) -> Result<(), String> {
        if self.program.is_empty() {
            return Err("the command is empty; expected a program and its arguments".to_owned());
        }
        let mut texts =
            std::iter::once(&self.program).chain(&self.arguments).chain(self.environment.0.values());
        if texts.any(|text| text.contains('\0')) {
            return Err("neither a command nor a variable can hold the character 0".to_owned());
        }
        let names = self.environment.0.keys().chain(&self.inherit);
        if names.into_iter().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(
                "a name of a variable is empty or has a = in it; expected one such as TOKEN".to_owned()
            );
        }
        if is_assignment(&self.program) {
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

/// True for `NAME=value`, as a shell takes it before a program.
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
        check(|command| command.program.clear(), "expected a program");
        check(|command| command.time_limit = Some(Duration::ZERO), "the time limit is 0");
        check(|command| command.output_limit = 0, "the output limit is 0");
        check(|command| command.line_limit = 0, "the line limit is 0");
        check(|command| command.memory_limit = Some(0), "the memory limit is 0");
        check(|command| command.processes = 0, "the number of processes is 0");
        check(|command| command.inherit = vec!["A=B".to_owned()], "a name of a variable is empty or has a =");
        check(
            |command| drop(command.environment.0.insert(String::new(), String::new())),
            "a name of a variable is empty",
        );
        check(|command| command.program = "KEY=s3cret".to_owned(), "begins with a variable");
    }

    #[test]
    fn values_of_variables_are_not_printed() {
        let mut command = Command::parse(Format::Text, "cat").unwrap();
        command.environment.0.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let printed = format!("{command:?}");
        assert!(printed.contains("TOKEN") && !printed.contains("hunter2"), "{printed}");
    }
}
