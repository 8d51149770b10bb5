//! `tests/peers/setup` where Go is missing or too old: it fails, and says what to install.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use nuncio_tests::hub::root;

/// The programs that `setup` uses before it looks for Go.
const TOOLS: [&str; 5] = ["bash", "dirname", "mkdir", "flock", "sort"];

/// The output of `setup` with this program as the only `go` of the machine.
fn refusal(go: Option<&str>) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("setup");
    // Left behind by a run that was broken off.
    let _ = std::fs::remove_dir_all(&folder);
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in TOOLS {
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.exists());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(tool)).unwrap();
    }
    if let Some(go) = go {
        write_program(&bin.join("go"), go);
    }
    let output = Command::new(bin.join("bash"))
        .arg(root().join("tests/peers/setup"))
        .env("PATH", &bin)
        .env("NUNCIO_PEERS", folder.join("peers"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn write_program(file: &Path, line: &str) {
    std::fs::write(file, format!("#!/bin/sh\n{line}\n")).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn setup_says_which_go_to_install() {
    for (go, found) in [
        (None, "go is missing"),
        (Some("echo go1.19.8"), "found go1.19.8"),
        (Some("echo go1.24.13"), "found go1.24.13"),
        (Some("echo"), "found an unknown version"),
        (Some("exit 1"), "go does not start"),
    ] {
        let said = refusal(go);
        assert!(said.contains(found) && said.contains("https://go.dev/doc/install"), "{go:?}: {said}");
        assert!(said.contains("1.25 or newer"), "{go:?}: {said}");
    }
}
