//! The store behind pgbouncer.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::store::conformance::{Writer, scope, stored};

/// A pgbouncer in front of the database of a test.
struct Pooler {
    child: Child,
    folder: std::path::PathBuf,
    url: String,
}

impl Pooler {
    fn start(url: &str, pool_mode: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (server, database) = url.rsplit_once('/').unwrap();
        let server_port = server.rsplit(':').next().unwrap();
        let folder = std::env::temp_dir().join(format!("nuncio-pgbouncer-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = {pool_mode}\n\
             default_pool_size = 40\nunix_socket_dir =\n"
        );
        std::fs::write(&settings, text).unwrap();
        // pgbouncer refuses to run as root; Debian keeps it out of the path of users.
        let as_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut command = if as_root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "/usr/sbin/pgbouncer"]);
            command
        } else {
            Command::new("/usr/sbin/pgbouncer")
        };
        let child = command.arg("--quiet").arg(&settings).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("pgbouncer: {error}; apt-get install pgbouncer"));
        Self { child, folder, url: format!("postgres://postgres@127.0.0.1:{port}/{database}") }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_all_is_as_without_one() {
    let url = postgres::database().await;
    let pooler = Pooler::start(&url, "session");
    let open = async || PostgresStore::connect(&pooler.url, options()).await.ok().map(Arc::new);
    let one = eventually("pgbouncer", open).await;
    let two = connect(&url).await;
    let mut heard = two.signals().subscribe(crate::store::Topic::Tasks("agent".into()));
    let mut writer = Writer::create(&shared(&one), &scope("ann"), "t-1", "c-1", 1).await;
    for when in 2.. {
        if matches!(heard.next().await, crate::store::Heard::Keys(_)) {
            break;
        }
        writer.status(nuncio_protocol::TaskState::Working, when).await;
    }
    assert_eq!(stored(&*two, &scope("ann"), &"t-1".into()).await, Some((writer.task.clone(), writer.seq)));
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_with_the_setting_to_change() {
    let url = postgres::database().await;
    let pooler = Pooler::start(&url, "transaction");
    let refusal = eventually("pgbouncer", async || {
        let error = PostgresStore::connect(&pooler.url, options()).await.expect_err("it is refused");
        (!matches!(error, crate::store::OpenError::Unreachable { .. })).then_some(error)
    })
    .await;
    assert!(refusal.to_string().contains("set pool_mode = session"), "{refusal}");
    assert_eq!(rows_of_schema(&url).await, "0", "nothing is written");
}

async fn rows_of_schema(url: &str) -> String {
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'nuncio'";
    postgres::run(url, sql).await[0][0].clone()
}
