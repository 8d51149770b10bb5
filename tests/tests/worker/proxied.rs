//! Workers behind what lies between machines: an nginx that has nothing but `proxy_pass`, and lines that are cut after
//! so many bytes. The hub is the binary.

use std::{fs, net::SocketAddr, path::Path};

use nuncio_client::worker::{Line, Worker};
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::free_address,
    post_office::{PostOffice, PullWorker, Sender, name_of, state_of, text_of},
    process::Process,
    torn::Torn,
    within,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, process::Command};

const MAILBOX: &str = "[agents.coder]\nmailbox = {}\n";

async fn open() -> (PostOffice, String, SocketAddr) {
    let office = PostOffice::open("127.0.0.1:0", "post.db", MAILBOX).await;
    let key = office.key("coder").await;
    let address = office.hub.announced["listen"].as_str().unwrap().parse().unwrap();
    (office, key, address)
}

/// An nginx before an address.
struct Nginx {
    url: String,
    _process: Process,
    _folder: Folder,
}

impl Nginx {
    async fn before(hub: SocketAddr) -> Self {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
        let program = program.into_iter().find(|program| Path::new(program).exists());
        let program = program
            .unwrap_or_else(|| panic!("nginx is missing: apt-get install nginx-light, as scripts/test does"));
        let (folder, listen) = (Folder::new(), free_address());
        let at = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("  {kind}_temp_path {at}/{kind};\n"))
            .concat();
        // What is not needed to run it beside the tests is as it comes.
        let configuration = format!(
            "daemon off;\npid {at}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}  \
             server {{\n    listen {listen};\n    location / {{\n      proxy_pass http://{hub};\n    }}\n  }}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new(program);
        command.args(["-e", "stderr", "-c", file.to_str().unwrap(), "-p", folder.path().to_str().unwrap()]);
        let process = Process::start(command);
        eventually("nginx", async || TcpStream::connect(listen).await.ok()).await;
        Self { url: format!("http://{listen}"), _process: process, _folder: folder }
    }
}

fn worker(hub: &str, key: &str) -> Worker {
    Worker::builder(hub, "coder").key(key).name("w1").build().unwrap()
}

/// A claim waits when the message comes; lines of more than a megabyte arrive; a cancel is told at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_plain_nginx_works_as_without_it() {
    let (office, key, address) = open().await;
    let nginx = Nginx::before(address).await;
    let worker = worker(&nginx.url, &key);
    let caller = Sender::to(&nginx.url, "coder");
    let claiming = tokio::spawn({
        let worker = worker.clone();
        async move { worker.next().await.unwrap() }
    });
    let task = caller.send("work").await;
    let lease = within("the lease", claiming).await.unwrap();
    assert_eq!(lease.claim().task_id.as_str(), task);
    let pieces = ["a", "b", "c"].map(|letter| letter.repeat(600_000));
    lease.write_all(pieces.iter().map(|piece| Line::text(piece.as_str())));
    within("the lines", lease.flush()).await.unwrap();
    within("the end", lease.finish(Line::completed(""))).await.unwrap();
    let done = caller.until(&task, "completed").await;
    assert!(text_of(&done) == pieces.concat(), "no line twice or missing");

    let task = caller.send("to be canceled").await;
    let lease = within("the lease", worker.next()).await.unwrap();
    lease.write(Line::working());
    within("the line", lease.flush()).await.unwrap();
    let canceling = tokio::spawn({
        let (caller, task) = (caller.clone(), task.clone());
        async move { caller.cancel(&task).await }
    });
    within("the cancel", lease.canceled().cancelled()).await;
    lease.release().await.unwrap();
    assert_eq!(canceling.await.unwrap().status, 200);
    caller.until(&task, "canceled").await;
    drop(office);
}

/// Each exchange is cut at every place until it gets through: claims, lines, the last one, and heartbeats.
#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_may_be_cut_anywhere() {
    let (office, key, address) = open().await;
    let torn = Torn::before(address, (1..=45).map(|number| number * 61).collect()).await;
    let worker = PullWorker::at(&torn.url(), "coder", &key);
    let caller = office.caller("coder");
    let mut tasks = Vec::new();
    for number in 0..4 {
        tasks.push(caller.send(&format!("work {number}")).await);
    }
    for number in 0..4 {
        let claim_key = format!("k{number}");
        let claim = [("nuncio-worker", "w1"), ("idempotency-key", &*claim_key), ("prefer", "wait=1")];
        let lease = worker.insist(":claim", &claim, "").await.json();
        let update = format!("/leases/{}:update", name_of(&lease));
        for line in 1..=8_u64 {
            let text = format!("{}\n", json!({"text": format!("{line} ")}));
            let told = worker.insist(&update, &[("nuncio-first", &line.to_string())], text).await;
            assert_eq!((told.status, &told.json()["have"]), (200, &json!(line)), "{}", told.body);
            let beat = worker.insist(&format!("/leases/{}:heartbeat", name_of(&lease)), &[], "").await;
            assert_eq!((beat.status, &beat.json()["have"]), (200, &json!(line)), "{}", beat.body);
        }
        let end = worker.insist(&update, &[("nuncio-first", "9")], "{\"completed\":\"\"}").await;
        assert_eq!((end.status, &end.json()["done"]), (200, &Value::Bool(true)), "{}", end.body);
    }
    for task in tasks {
        let task = caller.get(&task).await;
        assert_eq!((&*state_of(&task), &*text_of(&task)), ("completed", "1 2 3 4 5 6 7 8 "), "{task}");
        assert_eq!(task["metadata"]["nuncio.worker"]["generation"], 1, "a repeated claim is the same lease");
    }
    assert!(torn.cuts() > 30, "{} cuts", torn.cuts());
}

/// The worker of the client crate over a line of which every other connection is cut in the middle of an exchange.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_over_a_line_that_is_cut() {
    let (office, key, address) = open().await;
    let torn = Torn::before(address, vec![900, 20_000, 2_400, 20_000, 450, 20_000]).await;
    let worker = worker(&torn.url(), &key);
    let caller = office.caller("coder");
    let task = caller.send("work").await;
    let lease = within("the lease", worker.next()).await.unwrap();
    for number in 0..12 {
        lease.write(Line::text(format!("{number} ")));
        if number % 4 == 3 {
            within("the lines", lease.flush()).await.unwrap();
        }
    }
    within("the end", lease.finish(Line::completed(""))).await.unwrap();
    let task = caller.until(&task, "completed").await;
    assert_eq!(text_of(&task), (0..12).map(|number| format!("{number} ")).collect::<String>());
    assert!(torn.cuts() > 0);
}
