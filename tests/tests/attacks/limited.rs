//! Many callers send the worst bodies there are to a hub with little memory. It stays alive and within its limit, and
//! serves another caller meanwhile.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_tests::{
    data::Folder,
    hub::Hub,
    raw::{Answer, Raw},
};

const MIB: usize = 1 << 20;

/// The number of attackers.
const ATTACKERS: usize = 16;

const HEADERS: [(&str, &str); 2] = [("a2a-version", "1.0"), ("content-type", "application/json")];

/// The size of an attack.
struct Attack {
    body_bytes: usize,
    /// The memory of the container. The hub's limit is three quarters of it.
    container_bytes: usize,
    /// The requests of each attacker, unless the time is over before.
    requests: usize,
    time: Duration,
}

impl Attack {
    fn chosen() -> Self {
        if crate::is_long() {
            let time = Duration::from_secs(60);
            Self { body_bytes: 16 * MIB - 4096, container_bytes: 1024 * MIB, requests: usize::MAX, time }
        } else {
            let time = Duration::from_secs(600);
            Self { body_bytes: 4 * MIB, container_bytes: 384 * MIB, requests: 3, time }
        }
    }
}

/// A message that repeats an element up to this size. Some are refused, and some are taken.
fn body(kind: usize, bytes: usize) -> String {
    let (element, before, after) = [
        (r#"{"":0},"#, r#""parts":[{"data":["#, "0]}]"),
        (r#"{"text":""},"#, r#""parts":["#, r#"{"text":""}]"#),
        (r#""","#, r#""parts":[{"text":"x"}],"extensions":["#, r#"""]"#),
        ("[0],", r#""parts":[{"text":"x"}],"metadata":{"list":["#, "0]}"),
        ("xxxxxxxx", r#""parts":[{"text":""#, r#""}]"#),
    ][kind % 5];
    let list = element.repeat((bytes - 400) / element.len());
    let message = format!(r#"{{"messageId":"m","role":"ROLE_USER",{before}{list}{after}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{message}}}}}"#)
}

/// A control group that bounds the memory of a process, where this machine lets us make one.
struct Container(PathBuf);

impl Container {
    fn around(pid: u32, bytes: usize) -> Option<Self> {
        let (folder, limit) =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
                .into_iter()
                .find(|(folder, _)| Path::new(folder).join("cgroup.procs").exists())?;
        let folder = Path::new(folder).join(format!("nuncio-attack-{pid}"));
        fs::create_dir(&folder).ok()?;
        let container = Self(folder);
        fs::write(container.0.join(limit), bytes.to_string()).ok()?;
        fs::write(container.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(container)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It is empty once the hub has ended; what is left of it hurts nobody.
        let _ = fs::remove_dir(&self.0);
    }
}

async fn attack(hub: Raw, attack: &Attack, first: usize) -> [usize; 2] {
    let (end, mut counts) = (Instant::now() + attack.time, [0; 2]);
    for kind in (first..).take(attack.requests) {
        if Instant::now() > end {
            break;
        }
        let answer = hub.post(&HEADERS, body(kind, attack.body_bytes)).await;
        match answer.status {
            200 if answer.body.contains(r#""result""#) => counts[0] += 1,
            // A JSON-RPC error, such as too many parts.
            200 | 413 => {}
            429 => {
                assert!(!answer.header("retry-after").is_empty(), "it says when to come again");
                counts[1] += 1;
            }
            other => panic!("{other}: {}", &answer.body[..answer.body.len().min(300)]),
        }
    }
    counts
}

async fn small(hub: &Raw) -> Answer {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;
    hub.post(&HEADERS, call.to_owned()).await
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

/// One such body took up to 2.9 GB, and a hub with less was gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_with_little_memory_stays_alive_and_serves_small_requests() {
    for data in ["memory", "tasks.db"] {
        let size = Arc::new(Attack::chosen());
        let folder = Folder::new();
        let file = folder.path().join("nuncio.toml");
        let limit = size.container_bytes / 4 * 3;
        fs::write(&file, format!("[limits]\nmemory_limit_bytes = {limit}\n")).unwrap();
        let data =
            if data == "memory" { data.into() } else { folder.path().join(data).display().to_string() };
        let hub = Hub::start(&["--config", file.to_str().unwrap(), "--data", &data]).await;
        let container = Container::around(hub.process.id(), size.container_bytes);
        if container.is_none() {
            eprintln!("WARNING: no control group could be made here; the peak alone is checked");
        }
        let raw = Raw::new(hub.agent("echo"));
        let over = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let (raw, over, served) = (Raw::new(hub.agent("echo")), Arc::clone(&over), Arc::clone(&served));
            async move {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    let answer = small(&raw).await;
                    times.push(begin.elapsed());
                    assert_eq!(answer.status, 200, "{}", answer.body);
                    assert!(answer.body.contains("hello"), "{}", answer.body);
                    served.fetch_add(1, Ordering::Relaxed);
                }
                times
            }
        });
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|first| {
                let (raw, size) = (raw.clone(), Arc::clone(&size));
                tokio::spawn(async move { attack(raw, &size, first).await })
            })
            .collect();
        let mut counts = [0; 2];
        for attacker in attackers {
            let [taken, refused] = attacker.await.unwrap();
            counts = [counts[0] + taken, counts[1] + refused];
        }
        over.store(true, Ordering::Relaxed);
        let times = other.await.unwrap();
        let peak = crate::memory::memory(&hub, "VmHWM");
        eprintln!(
            "{data}: {} taken, {} refused, peak {} MiB of {}; {} small requests, p99 {:?}",
            counts[0],
            counts[1],
            peak / MIB,
            size.container_bytes / MIB,
            times.len(),
            p99(times),
        );
        assert!(peak < size.container_bytes, "{} MiB", peak / MIB);
        assert!(counts[0] > 0, "large requests are served, too");
        let answer = raw.post(&HEADERS, body(0, size.body_bytes)).await;
        assert_eq!(answer.status, 200, "and again when it is over: {}", &answer.body[..300]);
    }
}
