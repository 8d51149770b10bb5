//! Faults of a database, and their messages, which never contain the password.

use super::*;
use crate::store::{
    OpenError,
    conformance::{Writer, scope, stored},
};

const PASSWORD: &str = "s3cret-w0rd";

async fn refusal(url: &str) -> OpenError {
    let error = PostgresStore::connect(url, options()).await.expect_err("it is refused");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    error
}

#[tokio::test]
async fn an_unreachable_database_is_said_to_be_so() {
    // A port that was just closed has no listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refusal(&format!("postgres://ann:{PASSWORD}@127.0.0.1:{port}/tasks")).await;
    assert!(matches!(&error, OpenError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("postgres://ann@127.0.0.1:{port}/tasks")), "{error}");
}

#[tokio::test]
async fn a_wrong_password_and_none_are_denied_and_the_right_one_is_not() {
    let url = postgres::database().await;
    let role = format!(
        "DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}';
         DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO guarded', current_database()); END $$"
    );
    postgres::run(&url, &role).await;
    let with = |credentials: &str| url.replace("postgres@", &format!("{credentials}@"));
    for credentials in [format!("guarded:not-{PASSWORD}"), "guarded".to_owned()] {
        let error = refusal(&with(&credentials)).await;
        assert!(matches!(&error, OpenError::Denied { .. }), "{error:?}");
    }
    let store = connect(&with(&format!("guarded:{PASSWORD}"))).await;
    assert!(store.ready().await.is_ok());
    assert!(!format!("{store:?}").contains(PASSWORD), "{store:?}");
}

#[tokio::test]
async fn a_role_that_may_not_make_tables_is_denied() {
    let url = postgres::database().await;
    postgres::run(&url, "CREATE ROLE powerless LOGIN").await;
    let error = refusal(&url.replace("postgres@", "powerless@")).await;
    assert!(matches!(&error, OpenError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_that_is_missing_is_to_be_made_first() {
    let error = refusal(&postgres::server().url_of("nowhere")).await;
    assert!(error.to_string().contains("create the database first"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let url = postgres::database().await;
    drop(connect(&url).await);
    postgres::run(&url, "UPDATE nuncio.schema_version SET version = 99").await;
    let error = refusal(&url).await;
    assert!(matches!(&error, OpenError::NewerSchema { found: 99, .. }), "{error:?}");
    assert!(super::super::maintenance::check(&url).await.is_err());
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_left_alone() {
    let url = postgres::database().await;
    postgres::run(&url, "CREATE SCHEMA nuncio; CREATE TABLE nuncio.plants (name text)").await;
    let error = refusal(&url).await;
    assert!(matches!(&error, OpenError::NotOurs { .. }), "{error:?}");
    assert_eq!(postgres::run(&url, "SELECT count(*) FROM nuncio.plants").await, [["0"]]);
}

#[tokio::test]
async fn a_database_that_takes_no_writes_is_read_only() {
    let url = postgres::database().await;
    let name = url.rsplit('/').next().unwrap();
    postgres::run(&url, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    let error = refusal(&url).await;
    assert!(matches!(&error, OpenError::ReadOnly { .. }), "{error:?}");
}

#[tokio::test]
async fn many_hubs_may_open_an_empty_database_at_once() {
    let url = postgres::database().await;
    let opened = (0..8).map(|_| connect(&url));
    let stores = futures_util::future::join_all(opened).await;
    let mut epochs: Vec<i64> = stores.iter().map(|store| store.epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), stores.len(), "each is an owner of its own");
    Writer::create(&shared(&stores[0]), &scope("ann"), "t-1", "c-1", 1).await;
    assert!(stored(&*stores[7], &scope("ann"), &"t-1".into()).await.is_some());
}

#[tokio::test]
async fn the_way_to_the_database_is_protected_as_the_address_says() {
    let folder = std::env::temp_dir().join(format!("nuncio-postgres-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) =
        (file("cert.pem", &made.cert.pem()), file("key.pem", &made.signing_key.serialize_pem()));
    let other = file("other.pem", &other.cert.pem());
    let server = postgres::Server::start(&["--no-sync", "--tls", &cert, &key]);
    let by_name = server.url().replace("127.0.0.1", "localhost");
    for (url, options, protected) in [
        (server.url(), "sslmode=disable".to_owned(), Some(false)),
        (server.url(), "sslmode=prefer".to_owned(), Some(true)),
        (server.url(), "sslmode=require".to_owned(), Some(true)),
        (&*by_name, format!("sslmode=verify-full&sslrootcert={cert}"), Some(true)),
        (server.url(), format!("sslmode=verify-full&sslrootcert={cert}"), None),
        (&*by_name, format!("sslmode=verify-full&sslrootcert={other}"), None),
        (&*by_name, "sslmode=verify-full".to_owned(), None),
    ] {
        let url = format!("{url}?{options}");
        let Some(protected) = protected else {
            let error = refusal(&url).await;
            assert!(error.to_string().contains("certificate"), "{options}: {error}");
            continue;
        };
        let store = connect(&url).await;
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                   WHERE application_name = 'nuncio'";
        let seen = loop {
            store.ready().await.unwrap();
            let seen = postgres::run(server.url(), sql).await;
            if seen != [["NULL"]] {
                break seen;
            }
        };
        assert_eq!(seen, [[if protected { "t" } else { "f" }]], "{options}");
        store.close().await;
        drop(store);
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'nuncio'";
        while postgres::run(server.url(), gone).await != [["0"]] {
            tokio::task::yield_now().await;
        }
    }
    let plain = postgres::server().url();
    assert!(matches!(refusal(&format!("{plain}?sslmode=require")).await, OpenError::Unreachable { .. }));
    std::fs::remove_dir_all(folder).unwrap();
}
