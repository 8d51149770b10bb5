//! Workers of mailboxes as attackers: keys that open other mailboxes or agents, leases that are over, lines of every
//! wrong kind, bodies without end, and many claims at once.

use std::collections::HashSet;

use nuncio_tests::{
    post_office::{PostOffice, PullWorker, name_of, state_of, text_of},
    raw::{Answer, Raw},
    within,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const MAILBOXES: &str = "[agents.coder]\nmailbox = {}\n[agents.other]\nmailbox = {}\n";

/// The default limit of a body.
const MAX_BODY: usize = 16 << 20;

async fn open() -> PostOffice {
    PostOffice::open("127.0.0.1:0", "post.db", MAILBOXES).await
}

/// All of an answer that a caller can compare, but for what every answer has of its own.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let own = ["date", "x-request-id"];
    let headers = answer.headers.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    (answer.status, headers.collect(), answer.body.clone())
}

/// The calls on a mailbox, with a lease that may be anybody's.
fn calls(lease: &str) -> Vec<(&'static str, String)> {
    vec![
        ("POST", ":claim".to_owned()),
        ("POST", format!("/leases/{lease}:update")),
        ("POST", format!("/leases/{lease}:heartbeat")),
        ("POST", format!("/leases/{lease}:release")),
        ("PUT", "/card".to_owned()),
    ]
}

/// With the key of one mailbox another one cannot be told from one that does not exist, whether it is a foreign key, an
/// unknown one or none; and leases of others not from those that never were.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_its_mailbox_and_shows_nothing_of_others() {
    let office = open().await;
    let (coder, spent) = (office.key("coder").await, office.key("other").await);
    let task = office.caller("coder").send("secret work").await;
    let lease = office.worker("coder", &coder).claim("w1", "k1").await;
    let rotated = office.operate(&["mailbox", "rotate", "other"]).await;
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    let other = rotated.stdout.trim();
    for key in ["", "nonsense", &*spent, other] {
        for (verb, path) in calls(name_of(&lease)) {
            let body = "{\"completed\":\"stolen\"}";
            // From another machine: programs of its own the hub may tell what to create.
            let from = [("x-forwarded-for", "203.0.113.7")];
            let foreign = office.worker("coder", key).call(verb, &path, &from, body).await;
            let missing = office.worker("ghost", key).call(verb, &path, &from, body).await;
            assert_eq!(foreign.status, 401, "{verb} {path} with {key:?}: {}", foreign.body);
            assert_eq!(seen(&foreign), seen(&missing), "{verb} {path}");
            assert!(!foreign.body.contains("coder") && !foreign.body.contains("secret"), "{}", foreign.body);
        }
    }
    // With the right key of another mailbox the lease is as unknown as one that nobody has.
    let never = "0199e2a1-0000-7000-8000-000000000000.1";
    for (of_coder, of_nobody) in calls(name_of(&lease)).iter().zip(calls(never)).skip(1).take(3) {
        let worker = office.worker("other", other);
        let of_coder = worker.call(of_coder.0, &of_coder.1, &[], "").await;
        let of_nobody = worker.call(of_nobody.0, &of_nobody.1, &[], "").await;
        assert_eq!(of_coder.status, 409, "{}", of_coder.body);
        assert_eq!(seen(&of_coder), seen(&of_nobody));
    }
    assert_eq!(office.worker("other", other).try_claim("w1", "k1").await.status, 204, "it has its own only");
    assert_eq!(state_of(&office.caller("coder").get(&task).await), "submitted", "nothing was written");
}

/// The key of a mailbox is no key of a caller, nor of an operator.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_mailbox_calls_no_agent_and_administers_nothing() {
    let office = open().await;
    let key = office.key("coder").await;
    let (start, last) = key.split_at(key.len() - 1);
    let unknown = format!("{start}{}", if last == "x" { "y" } else { "x" });
    let message = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
    let admin = office.hub.announced["admin"]["listen"].as_str().unwrap();
    for (base, verb, path, body) in [
        (&*office.hub.base, "POST", "/agents/coder/message:send", message),
        (&*office.hub.base, "POST", "/agents/other", call),
        (&*office.hub.base, "GET", "/agents/coder/tasks", ""),
        (&*office.hub.base, "GET", "/agents/ghost/tasks", ""),
        (&*format!("http://{admin}"), "GET", "/api/mailboxes", ""),
    ] {
        let raw = Raw::new(base);
        let ask = async |key: &str| {
            let authorization = format!("Bearer {key}");
            let headers = [
                ("authorization", &*authorization),
                ("a2a-version", "1.0"),
                ("content-type", "application/json"),
            ];
            raw.ask(verb, path, &headers, body).await
        };
        let (refused, same) = (ask(&key).await, ask("nuncio_unknown").await);
        assert_eq!((refused.status, same.status), (401, 401), "{path}: {}", refused.body);
        // Only its holder is told what a key opens.
        assert!(!same.body.contains("mailbox"), "{}", same.body);
    }
    assert_eq!(office.worker("coder", &unknown).try_claim("w1", "k").await.status, 401);
    assert_eq!(office.worker("coder", &key).try_claim("w1", "k").await.status, 204, "nothing was begun");
}

/// Nothing is written of the lines that a worker sends under a lease that was taken over.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_lease_writes_nothing() {
    let office = open().await;
    let worker = office.worker("coder", &office.key("coder").await);
    let task = office.caller("coder").send("work").await;
    let stale = worker.claim("w1", "k1").await;
    let taken = office.operate(&["mailbox", "take-over", "coder"]).await;
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let lease = worker.claim("w2", "k2").await;
    assert_ne!(lease["lease"], stale["lease"]);
    worker.write(&lease, 1, &json!({"text": "mine"})).await;
    let before = office.caller("coder").get(&task).await;
    let never = "0199e2a1-0000-7000-8000-000000000000.1";
    for body in ["{\"text\":\"x\"}", "{\"completed\":\"x\"}", "{\"memo\":1}", "nonsense", ""] {
        for first in ["1", "2", "9"] {
            let answer = worker.update(name_of(&stale), first, body).await;
            let unknown = worker.update(never, first, body).await;
            assert_eq!((answer.status, answer.json()["reason"].as_str()), (409, Some("lease-lost")));
            assert_eq!(seen(&answer), seen(&unknown));
        }
    }
    for answer in [worker.heartbeat(name_of(&stale)).await, worker.release(name_of(&stale)).await] {
        assert_eq!(answer.json()["reason"], "lease-lost");
    }
    // Another name of the lease that lives is none.
    let (turn, generation) = name_of(&lease).split_once('.').unwrap();
    for name in [format!("{turn}.0{generation}"), format!("{turn}.+{generation}"), turn.to_uppercase()] {
        assert_ne!(worker.update(&name, "2", "{\"text\":\"x\"}").await.status, 200, "{name}");
    }
    assert_eq!(office.caller("coder").get(&task).await, before);
    worker.write(&lease, 2, &json!({"completed": ""})).await;
    let late = worker.update(name_of(&lease), "3", "{\"text\":\"after the end\"}").await;
    assert_eq!(late.json()["reason"], "lease-lost", "{}", late.body);
    assert_eq!(text_of(&office.caller("coder").get(&task).await), "mine");
}

/// Bodies that are refused: what is wrong, the number of the first line, the body, and status with reason.
fn wrong_bodies() -> Vec<(&'static str, &'static str, Vec<u8>, u16, &'static str)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let long = "x".repeat(MAX_BODY + 1);
    let mut wrong = vec![
        ("no JSON", "1", text("garbage"), 400, "invalid-line"),
        ("binary", "1", (0..=255).collect(), 400, "invalid-line"),
        ("no UTF-8", "1", b"{\"text\":\"\xff\xfe\"}".to_vec(), 400, "invalid-line"),
        ("half a character", "1", b"{\"text\":\"\xc3\"}".to_vec(), 400, "invalid-line"),
        ("half of a pair", "1", text(r#"{"text":"\ud800"}"#), 400, "invalid-line"),
        ("a byte order mark", "1", text("\u{feff}{\"text\":\"x\"}"), 400, "invalid-line"),
        ("NUL", "1", b"\0".to_vec(), 400, "invalid-line"),
        ("half a line", "1", text("{\"text\":\"x"), 400, "invalid-line"),
        ("two on a line", "1", text("{\"text\":\"x\"}{\"text\":\"y\"}"), 400, "invalid-line"),
        ("an array", "1", text("[]"), 400, "invalid-line"),
        ("nothing", "1", text("{}"), 400, "invalid-line"),
        ("a wrong last line", "1", text("{\"text\":\"x\"}\n{\"txt\":1}"), 400, "invalid-line"),
        ("events after the end", "1", text("{\"completed\":\"\"}\n{\"text\":\"x\"}"), 400, "invalid-line"),
        (
            "after a question",
            "1",
            text("{\"inputRequired\":\"?\"}\n{\"completed\":\"\"}"),
            400,
            "invalid-line",
        ),
        ("a cancel", "1", text("{\"status\":\"canceled\"}"), 400, "invalid-line"),
        ("a task", "1", text("{\"task\":{\"id\":\"another\"}}"), 400, "invalid-line"),
        (
            "an artifact without parts",
            "1",
            text("{\"artifact\":{\"artifactId\":\"a\"}}"),
            400,
            "invalid-line",
        ),
        ("deep", "1", text(&format!("{{\"completed\":{}}}", "[".repeat(100_000))), 400, "invalid-line"),
        (
            "deep data",
            "1",
            text(&format!(
                "{{\"artifact\":{{\"artifactId\":\"a\",\"parts\":[{{\"data\":{}{}}}]}}}}",
                "[".repeat(100_000),
                "]".repeat(100_000)
            )),
            400,
            "invalid-line",
        ),
        (
            "a large memo",
            "1",
            text(&format!("{{\"memo\":\"{}\"}}", "x".repeat(16 << 10))),
            400,
            "invalid-line",
        ),
        ("many lines", "1", text(&"{\"text\":\"\"}\n".repeat(10_001)), 400, "invalid-line"),
        ("a huge line", "1", text(&format!("{{\"text\":\"{long}\"}}")), 413, "too-large"),
        ("a gap", "3", text("{\"text\":\"x\"}"), 409, "gap"),
        ("a far gap", "9223372036854775806", text("{\"text\":\"x\"}"), 409, "gap"),
    ];
    for number in ["0", "-1", "1e3", "1.0", "x", "18446744073709551615", "99999999999999999999", "1, 1"] {
        wrong.push(("a wrong number", number, text("{\"text\":\"x\"}"), 400, "invalid"));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_lines_are_refused_whole_and_the_lease_goes_on() {
    let office = open().await;
    let worker = office.worker("coder", &office.key("coder").await);
    let task = office.caller("coder").send("work").await;
    let lease = worker.claim("w1", "k1").await;
    for (what, first, body, status, reason) in wrong_bodies() {
        let answer = worker.update(name_of(&lease), first, body).await;
        let told = (answer.status, answer.json()["reason"].as_str().unwrap_or_default().to_owned());
        assert_eq!(told, (status, reason.to_owned()), "{what} from {first}: {}", answer.body);
        assert!(answer.body.len() < 1_000, "{what}: {}", answer.body);
        let have = worker.heartbeat(name_of(&lease)).await.json();
        assert_eq!(have["have"], 0, "{what}: nothing of it is stored");
    }
    assert_eq!(state_of(&office.caller("coder").get(&task).await), "submitted");
    // What is odd and good.
    for (first, body, have) in [
        ("1", "\r\n\n  {\"text\":\"a\"}  \r\n\r\n", 1),
        ("2", r#"{"text":"\u0000\u001b[31m"}"#, 2),
        ("1", "{\"text\":\"not a\"}\n{\"text\":\"nor b\"}\n{\"text\":\"c\"}", 3),
        ("4", "", 3),
    ] {
        let answer = worker.update(name_of(&lease), first, body).await;
        assert_eq!((answer.status, &answer.json()["have"]), (200, &json!(have)), "{body:?}: {}", answer.body);
    }
    worker.write(&lease, 4, &json!({"completed": ""})).await;
    let task = office.caller("coder").get(&task).await;
    assert_eq!((&*state_of(&task), &*text_of(&task)), ("completed", "a\0\u{1b}[31mc"));
}

/// A worker says what another task, or the hub, would have said.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_writes_to_its_own_task_and_in_its_own_name() {
    let office = open().await;
    let worker = office.worker("coder", &office.key("coder").await);
    let caller = office.caller("coder");
    let (mine, another) = (caller.send("mine").await, caller.send("another").await);
    let lease = worker.claim("w1", "k1").await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": another, "contextId": "c",
        "parts": [{"text": "as a user"}]});
    let forged = json!({"nuncio.worker": {"name": "root"}, "nuncio.waitsFor": {"agent": "x"}, "own": 1});
    for (number, line) in (1..).zip([
        json!({"statusUpdate": {"taskId": another, "contextId": "c", "metadata": forged,
            "status": {"state": "TASK_STATE_WORKING", "message": message, "timestamp": "2001-01-01T00:00:00Z"}}}),
        json!({"artifactUpdate": {"taskId": another, "contextId": "c",
            "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}}}),
        json!({"message": message}),
    ]) {
        worker.write(&lease, number, &line).await;
    }
    let (task, other) = (caller.get(&mine).await, caller.get(&another).await);
    assert_eq!((&*state_of(&task), &*text_of(&task)), ("completed", "x"), "{task}");
    assert_eq!(task["metadata"]["nuncio.worker"], json!({"name": "w1", "generation": 1}), "{task}");
    assert_eq!((&task["metadata"]["nuncio.waitsFor"], &task["metadata"]["own"]), (&Value::Null, &json!(1)));
    assert!(!task.to_string().contains("2001-01-01"), "{task}");
    let said = task["history"].as_array().unwrap().iter().chain([&task["status"]["message"]]);
    for said in said.filter(|said| said["parts"][0]["text"] == "as a user") {
        assert_eq!((&said["role"], &said["taskId"]), (&json!("ROLE_AGENT"), &json!(mine)), "{said}");
    }
    assert_eq!((&*state_of(&other), &other["artifacts"]), ("submitted", &Value::Null), "{other}");
}

/// The lines that would take many times their size once they are parsed.
#[tokio::test(flavor = "multi_thread")]
async fn lines_of_tiny_values_take_little_more_than_their_text() {
    let size = if crate::is_long() { MAX_BODY - 4096 } else { 4 << 20 };
    let list = |element: &str| element.repeat(size / element.len());
    for (what, body) in [
        ("numbers", format!("{{\"completed\":[{}0]}}", list("0,"))),
        ("an unknown member", format!("{{\"x\":[{}0]}}", list("0,"))),
        ("members", format!("{{{}\"x\":0}}", list("\"\":0,"))),
        ("a memo", format!("{{\"memo\":[{}0]}}", list("[0],"))),
        (
            "data",
            format!("{{\"artifact\":{{\"artifactId\":\"a\",\"parts\":[{{\"data\":[{}0]}}]}}}}", list("0,")),
        ),
        ("parts", format!("{{\"completed\":[{}{{\"text\":\"\"}}]}}", list("{\"text\":\"\"},"))),
        ("lines", format!("{}{{}}", list("{\"text\":\"\"}\n"))),
    ] {
        let office = open().await;
        let worker = office.worker("coder", &office.key("coder").await);
        let task = office.caller("coder").send("work").await;
        let lease = worker.claim("w1", "k1").await;
        let before = crate::memory::memory(&office.hub, "VmHWM");
        let answer = worker.update(name_of(&lease), "1", body.clone()).await;
        assert!([200, 400, 413].contains(&answer.status), "{what}: {} {}", answer.status, answer.body);
        let grown = crate::memory::memory(&office.hub, "VmHWM").saturating_sub(before);
        let times = grown as f64 / body.len() as f64;
        eprintln!("{what}: {} and {times:.1} times the body", answer.status);
        assert!(times < 20.0, "{what}: grew by {times:.1} times the body");
        let have = worker.heartbeat(name_of(&lease)).await.json();
        let next = have["have"].as_u64().unwrap() + 1;
        worker.write(&lease, next, &json!({"completed": "fine"})).await;
        assert_eq!(state_of(&office.caller("coder").get(&task).await), "completed", "{what}");
    }
}

/// Bodies that never end, or never come: they hold up nobody, and write nothing.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_without_end_and_bodies_that_do_not_come_hold_up_nobody() {
    let office = open().await;
    let key = office.key("coder").await;
    let worker = office.worker("coder", &key);
    let task = office.caller("coder").send("work").await;
    let lease = worker.claim("w1", "k1").await;
    let address = office.hub.announced["listen"].as_str().unwrap().to_owned();
    let head = |length: &str| {
        format!(
            "POST /mailboxes/coder/leases/{}:update HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer \
             {key}\r\n{length}\r\n\r\n",
            name_of(&lease)
        )
    };
    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut connection = TcpStream::connect(&address).await.unwrap();
        connection.write_all(head("content-length: 1000").as_bytes()).await.unwrap();
        connection.write_all(b"{\"text\":\"half a body").await.unwrap();
        slow.push(connection);
    }
    let mut endless = TcpStream::connect(&address).await.unwrap();
    endless.write_all(head("transfer-encoding: chunked").as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let answered = within("the refusal of a body without end", async {
        let (mut answer, mut from) = (vec![0; 4096], 0);
        let (mut read, mut write) = endless.split();
        loop {
            tokio::select! {
                biased;
                // The hub may hang up instead, on one who goes on.
                got = read.read(&mut answer[from..]) => match got {
                    Ok(0) | Err(_) => break,
                    Ok(got) => { from += got; break }
                },
                _ = write.write_all(chunk.as_bytes()) => {}
            }
        }
        String::from_utf8_lossy(&answer[..from]).into_owned()
    })
    .await;
    assert!(answered.is_empty() || answered.starts_with("HTTP/1.1 413"), "{answered}");
    // Meanwhile the worker works.
    worker.write(&lease, 1, &json!({"text": "whole"})).await;
    drop(slow);
    worker.write(&lease, 2, &json!({"completed": ""})).await;
    let task = office.caller("coder").get(&task).await;
    assert_eq!((&*state_of(&task), &*text_of(&task)), ("completed", "whole"));
}

/// Repeats of one claim at once are one lease; others get other turns; and more workers than turns get nothing.
#[tokio::test(flavor = "multi_thread")]
async fn claims_at_once_are_each_answered_for_themselves() {
    let office = open().await;
    let worker = office.worker("coder", &office.key("coder").await);
    for number in 0..20 {
        office.caller("coder").send(&number.to_string()).await;
    }
    let claim = |worker: PullWorker, key: String| async move {
        let answer = worker.try_claim("w1", &key).await;
        assert!([200, 204].contains(&answer.status), "{} {}", answer.status, answer.body);
        answer.json()["lease"].as_str().map(str::to_owned)
    };
    let claims: Vec<_> =
        (0..120).map(|number| tokio::spawn(claim(worker.clone(), format!("k{}", number % 30)))).collect();
    let mut leases = Vec::new();
    for claimed in claims {
        leases.extend(claimed.await.unwrap());
    }
    let different: HashSet<_> = leases.iter().collect();
    assert_eq!(different.len(), 20, "each turn once");
    for (name, value) in [
        ("idempotency-key", "x".repeat(256)),
        ("idempotency-key", String::new()),
        ("nuncio-worker", "x".repeat(65)),
        ("nuncio-worker", "a b".to_owned()),
        ("prefer", "wait=soon".to_owned()),
    ] {
        let answer = worker.call("POST", ":claim", &[(name, &value)], "").await;
        assert_eq!(
            (answer.status, &answer.json()["reason"]),
            (400, &json!("invalid")),
            "{name}: {}",
            answer.body
        );
    }
}

/// A mailbox without a key is for programs of this machine, not for pages in a browser on it.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_no_workers() {
    let office = open().await;
    office.caller("coder").send("work").await;
    let worker = office.worker("coder", "");
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("sec-fetch-site", "cross-site")],
        &[("x-forwarded-for", "203.0.113.7")],
        &[("host", "evil.example")],
    ] {
        let answer = worker.call("POST", ":claim", headers, "").await;
        assert!([401, 403, 421].contains(&answer.status), "{headers:?}: {} {}", answer.status, answer.body);
    }
    assert_eq!(worker.try_claim("w1", "k1").await.status, 200, "it waited for a worker");
}
