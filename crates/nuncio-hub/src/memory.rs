//! The memory limit of the hub: its default, and the measured size of the process.

use std::{convert::Infallible, fs, path::Path, time::Duration};

use nuncio_server::MemoryAccount;

/// The interval between two measurements of the process.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);

/// The limit if neither the container nor the machine reports its memory.
const FALLBACK_LIMIT: usize = 1 << 30;

/// The share of the limit for tasks in the memory store.
const STORE_SHARE: usize = 4;

/// The account of a hub with this limit; the default is three quarters of the available memory.
pub(crate) fn account(limit: Option<usize>) -> MemoryAccount {
    MemoryAccount::new(limit.unwrap_or_else(|| {
        available(|path| fs::read_to_string(path).ok()).map_or(FALLBACK_LIMIT, |available| available / 4 * 3)
    }))
}

/// The bytes that tasks in the memory store may take.
pub(crate) fn store_bytes(account: &MemoryAccount) -> usize {
    account.limit() / STORE_SHARE
}

/// Measures the process for as long as it is polled. On systems that do not report its size, only the
/// account's own figures count.
pub(crate) async fn measure(account: &MemoryAccount) -> Infallible {
    let mut ticks = tokio::time::interval(MEASURE_INTERVAL);
    loop {
        ticks.tick().await;
        match resident() {
            Some(bytes) => account.set_resident(bytes),
            None => std::future::pending().await,
        }
    }
}

/// The resident size of this process.
pub(crate) fn resident() -> Option<usize> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

/// The memory of the machine, or of the container if that is less.
fn available(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    [machine(&read), cgroup2(&read), cgroup1(&read)].into_iter().flatten().min()
}

fn machine(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let meminfo = read("/proc/meminfo")?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The limit of control groups, version 2.
/// The limit of control groups, version 1.
fn cgroup2(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let groups = read("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    least_limit(group, |group| read(&format!("/sys/fs/cgroup{group}/memory.max")))
}

/// The limit by version 1 of control groups.
fn cgroup1(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == "memory").then_some(group)
    });
    // A container may see its own group as the root, under another path.
    least_limit(group.unwrap_or("/"), |group| {
        read(&format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"))
    })
}

/// The lowest limit of a control group and its ancestors. Paths are read without a trailing slash.
fn least_limit(group: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let groups = Path::new(group).ancestors().filter_map(Path::to_str);
    groups.filter_map(|group| parse_limit(&read(group.trim_end_matches('/'))?)).min()
}

/// A limit in bytes; `None` for `max`.
fn parse_limit(text: &str) -> Option<usize> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// The text of a file, by its path.
    type File = (&'static str, &'static str);

    #[test]
    fn the_least_of_machine_and_container_is_available() {
        let machine = ("/proc/meminfo", "MemTotal:        2097152 kB\nMemFree: 1 kB\n");
        let group = ("/proc/self/cgroup", "0::/hub.slice/nuncio.service\n");
        let service = |limit| ("/sys/fs/cgroup/hub.slice/nuncio.service/memory.max", limit);
        let slice = ("/sys/fs/cgroup/hub.slice/memory.max", "536870912\n");
        // A container with a namespace of its own is the root of what it sees.
        let container = [("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "268435456\n")];
        let version1 = |limit| ("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit);
        let old_group = ("/proc/self/cgroup", "4:cpu,memory:/hub\n0::/\n");
        let old_limit = ("/sys/fs/cgroup/memory/hub/memory.limit_in_bytes", "67108864\n");
        let cases: &[(&[File], Option<usize>)] = &[
            (&[], None),
            (&[machine], Some(2048 * MIB)),
            (&[machine, group], Some(2048 * MIB)),
            (&[machine, group, service("max\n")], Some(2048 * MIB)),
            (&[machine, group, service("max\n"), slice], Some(512 * MIB)),
            (&[machine, group, service("134217728\n"), slice], Some(128 * MIB)),
            (&[machine, container[0], container[1]], Some(256 * MIB)),
            (&[machine, version1("134217728\n")], Some(128 * MIB)),
            (&[machine, old_group, old_limit, version1("9223372036854771712\n")], Some(64 * MIB)),
            // Version 1 writes this for no limit.
            (&[machine, version1("9223372036854771712\n")], Some(2048 * MIB)),
        ];
        for (files, expected) in cases {
            let read =
                |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
            assert_eq!(available(read), *expected, "{files:?}");
        }
    }

    #[test]
    fn the_process_has_a_size() {
        let resident = resident().expect("Linux tells it");
        assert!((MIB..16_384 * MIB).contains(&resident), "{resident} bytes");
    }
}
