//! The packages fit the binary: its flags, variables and files. No container is built here.

use std::{collections::BTreeSet, fs};

use nuncio_tests::hub::{cli, root};

fn read(name: &str) -> String {
    fs::read_to_string(root().join("packaging").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The flags before `--help` are looked at first: one that is not there is an error.
async fn is_taken(words: &[&str]) {
    let asked = cli(&[words, &["--help"]].concat()).await;
    assert_eq!(asked.code, Some(0), "{words:?}: {}", asked.stderr);
}

/// Variables that the binary reads, as far as its help tells.
async fn variables() -> String {
    let mut known = cli(&["serve", "--help"]).await.stdout;
    known.push_str(&cli(&["healthcheck", "--help"]).await.stdout);
    known
}

/// The words after this key, without the program.
fn command<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("no {key}"));
    line.split_whitespace().skip(1).collect()
}

#[tokio::test]
async fn the_unit_starts_what_there_is() {
    assert!(!cli(&["serve", "--no-such-flag", "--help"]).await.stderr.is_empty(), "help hides no mistake");
    let unit = read("nuncio.service");
    is_taken(&command(&unit, "ExecStart=/usr/bin")).await;
    let known = variables().await;
    for name in unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.split('=').next()) {
        assert!(known.contains(name), "{name} is no variable of ours");
    }
    // Each setting once, in a section, with a value or an empty one on purpose.
    let mut seen = BTreeSet::new();
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
        assert!(seen.insert((name, value)), "{line} twice");
    }
}

#[tokio::test]
async fn the_container_copies_what_there_is_and_runs_what_there_is() {
    let file = read("Containerfile");
    for line in file.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from=")) {
        let mut sources: Vec<_> = line.split_whitespace().skip(1).collect();
        sources.pop();
        for source in sources {
            assert!(root().join(source).exists(), "{source} of {line}");
        }
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    for member in members.split('"').skip(1).step_by(2) {
        let folder = member.trim_end_matches("/*");
        assert!(file.contains(&format!("COPY {folder} {folder}\n")), "{folder} is a member and not copied");
    }
    let words = |key: &str| -> Vec<String> {
        let line = file.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no {key}"));
        let (_, list) = line.split_once("CMD ").unwrap();
        let words: Vec<String> = serde_json::from_str(list).unwrap_or_else(|error| panic!("{key}: {error}"));
        words.into_iter().filter(|word| !word.ends_with("/nuncio")).collect()
    };
    is_taken(&words("CMD [").iter().map(String::as_str).collect::<Vec<_>>()).await;
    let known = variables().await;
    let names = file.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    for name in names.filter(|name| name.starts_with("NUNCIO_")) {
        assert!(known.contains(name), "{name} is no variable of ours");
    }
}

#[tokio::test]
async fn the_compose_file_runs_what_there_is() {
    let compose = read("compose.yaml");
    for key in ["command: ", "test: "] {
        let line = compose.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
        let words: Vec<String> = serde_json::from_str(line).unwrap();
        let is_argument = |word: &&str| *word != "CMD" && !word.ends_with("/nuncio");
        is_taken(&words.iter().map(String::as_str).filter(is_argument).collect::<Vec<_>>()).await;
    }
    let known = variables().await;
    let names = compose.lines().filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| name);
    for name in names.filter(|name| name.starts_with("NUNCIO_")) {
        assert!(known.contains(name), "{name} is no variable of ours");
    }
}

#[tokio::test]
async fn every_command_has_a_page_and_every_shell_a_script() {
    let pages = crate::directory("man");
    assert_eq!(cli(&["man", crate::path(&pages)]).await.code, Some(0));
    let help = cli(&["--help"]).await.stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"serve") && names.contains(&"healthcheck"), "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        let page = fs::read_to_string(pages.join(format!("nuncio-{name}.1"))).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
    assert!(cli(&["man"]).await.stdout.contains(".TH nuncio 1"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli(&["completion", shell]).await;
        assert_eq!(script.code, Some(0), "{script:?}");
        assert!(script.stdout.contains("healthcheck"), "{shell}");
    }
    assert_eq!(cli(&["completion", "csh"]).await.code, Some(2));
}

/// As it is, and with each example in it.
#[tokio::test]
async fn the_default_configuration_is_one() {
    let text = read("nuncio.toml");
    fn example(line: &str) -> Option<&str> {
        line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || rest.contains(" = "))
    }
    let all: Vec<_> = text.lines().map(|line| example(line).unwrap_or(line)).collect();
    let file = crate::directory("packaged").join("nuncio.toml");
    for text in [text.clone(), all.join("\n")] {
        fs::write(&file, &text).unwrap();
        let checked = cli(&["check", "--offline", crate::path(&file)]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}\n{text}");
    }
}
