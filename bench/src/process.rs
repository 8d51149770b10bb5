//! CPU and memory of a process, read from /proc.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

/// CPU time of all threads, in nanoseconds.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("the benchmark needs Linux")? {
        let path = thread?.path().join("schedstat");
        total += first_number(&path).unwrap_or(0);
    }
    Ok(total)
}

fn first_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// A process and its children.
pub(crate) fn family(parent: u32) -> Result<Vec<u32>> {
    let mut family = vec![parent];
    for process in fs::read_dir("/proc")? {
        let Some(pid) = process?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // "pid (name) state parent ...": a name may hold anything, so the fields begin behind the last bracket.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if of == Some(parent) {
            family.push(pid);
        }
    }
    Ok(family)
}

/// Bytes that a process has caused to be written to the disk.
pub(crate) fn written(pid: u32) -> Result<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no write_bytes in /proc")?.trim().parse()?)
}

/// Resident memory, in bytes.
pub(crate) fn rss(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// The most resident memory so far, in bytes.
pub(crate) fn peak(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, kind: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(kind));
    let line = line.with_context(|| format!("no {kind} in /proc"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

/// Starts a process on this core from its first moment, so that it makes as many threads as it has cores; on any core
/// if `taskset` is not installed. Its output is captured.
pub(crate) fn start(core: usize, program: &OsStr, args: &[&str]) -> Result<Child> {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    if let Ok(child) = command.args(args).stdout(Stdio::piped()).spawn() {
        return Ok(child);
    }
    start_anywhere(program, args)
}

/// Starts a process on all cores. Its output is captured.
pub(crate) fn start_anywhere(program: &OsStr, args: &[&str]) -> Result<Child> {
    let child = Command::new(program).args(args).stdout(Stdio::piped()).spawn();
    child.with_context(|| format!("cannot start {}", program.display()))
}

/// A control group that bounds the memory of a process, where this machine lets us make one.
pub(crate) struct ControlGroup(PathBuf);

impl ControlGroup {
    pub(crate) fn around(pid: u32, bytes: usize) -> Option<Self> {
        let (root, limit) =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
                .into_iter()
                .find(|(root, _)| Path::new(root).join("cgroup.procs").exists())?;
        let folder = Path::new(root).join(format!("nuncio-bench-{pid}"));
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        fs::write(group.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // It is empty once the process has ended; a leftover is harmless.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Pins a process and all its threads to a core, if `taskset` is there and the machine has another.
pub(crate) fn pin(pid: u32, core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores > core {
        set_cores(pid, &core.to_string());
    }
}

/// Lets a process and all its threads run on every core again.
pub(crate) fn unpin(pid: u32) {
    // Cores that are not there do not count.
    set_cores(pid, "0-1023");
}

fn set_cores(pid: u32, cores: &str) {
    let _ = Command::new("taskset")
        .args(["-apc", cores, &pid.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
