//! The memory that the hub may take: how much there is, and how much of it the process has.
//!
//! Bodies, answers and tasks reserve what they need in one [`MemoryBudget`]. The rest (connections, caches, what an
//! allocator keeps) is seen in the resident memory of the process, which is measured and counts as well.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nuncio_server::MemoryBudget;
use tokio::task::JoinHandle;

/// Between two measurements of the process.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// The share of the memory there is that the hub takes by default, in percent.
const DEFAULT_SHARE: usize = 75;
/// The limit where the system does not tell how much memory there is.
const FALLBACK: usize = 1024 * 1024 * 1024;

/// The limit by default: three quarters of the container's memory, or of the machine's.
#[must_use]
pub(crate) fn default_limit() -> usize {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| {
        // A group without a limit has the word `max`.
        fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    let machine = field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:");
    share(limits.chain(machine).min())
}

fn share(available: Option<usize>) -> usize {
    available.map_or(FALLBACK, |bytes| bytes / 100 * DEFAULT_SHARE)
}

/// The files with the limits of the control groups that a process is in, of either version of the interface. The
/// limit of a group holds for the groups in it. In a container the path may be the host's, while the group itself
/// is at the top.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (base, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
        files.extend(ancestors.map(|group| Path::new(base).join(group).join(file)));
    }
    files
}

/// The resident memory of this process, where the system tells it.
fn resident() -> Option<usize> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The value of a line such as `VmRSS:  1234 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Tells the budget again and again how much memory the process has.
pub(crate) fn spawn_measurement(budget: MemoryBudget) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(MEASURE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Without a figure only reservations count.
            budget.set_resident(resident().unwrap_or(0));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_every_group_around_the_process() {
        for (groups, expected) in [
            ("0::/\n", vec!["/sys/fs/cgroup/memory.max"]),
            (
                "0::/system.slice/nuncio.service\n",
                vec![
                    "/sys/fs/cgroup/system.slice/nuncio.service/memory.max",
                    "/sys/fs/cgroup/system.slice/memory.max",
                    "/sys/fs/cgroup/memory.max",
                ],
            ),
            (
                "7:cpu,memory:/box\n3:pids:/box\n",
                vec![
                    "/sys/fs/cgroup/memory/box/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                ],
            ),
            ("nonsense\n", vec![]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(limit_files(groups), expected, "{groups}");
        }
    }

    #[test]
    fn fields_are_read_in_bytes() {
        let text = "Name:\tnuncio\nVmRSS:\t    2048 kB\nVmData:\t lots\n";
        assert_eq!(field(text, "VmRSS:"), Some(2 * 1024 * 1024));
        assert_eq!(field(text, "VmData:"), None);
        assert_eq!(field(text, "VmSwap:"), None);
    }

    #[test]
    fn the_hub_takes_three_quarters_of_what_there_is() {
        assert_eq!(share(Some(400)), 300);
        assert_eq!(share(None), FALLBACK);
        assert!(resident().is_none_or(|bytes| bytes > 1024 * 1024));
    }
}
