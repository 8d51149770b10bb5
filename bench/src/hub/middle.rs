//! Server between the generator and an agent: none, nginx, or a hub in one of its modes.

use std::{
    ffi::OsStr,
    fmt, fs,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use nuncio_hub::{
    Hub,
    config::{Agent, AgentKind, AgentOrigin, Config, Mode, Room, Rounds, Storage, Upstream},
};
use nuncio_protocol::{Binding, Version};

use crate::{
    place::Place,
    process,
    request::AGENT,
    server::{SERVER_CORE, Server, Subject, parse, tell},
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Middle {
    /// The agent is called directly.
    Nobody,
    /// A plain reverse proxy.
    Nginx,
    /// A hub that hands calls on as they came.
    Proxy(Subject, Callers),
    /// A hub before an agent of version 0.3.
    ProxyToOld,
    /// A hub before an agent that speaks HTTP+JSON only.
    ProxyToRest,
    /// A hub that keeps the tasks.
    Durable(Subject, Callers),
    /// A hub that answers with its own agent; there is no remote one.
    Alone(Subject, Callers),
    /// A room of a hub with the agent in its second seat, which keeps the tasks of both seats and of the agent.
    Room(Subject),
}

/// Callers of a hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Callers {
    /// Anonymous callers: a proxy records no owner.
    Anybody,
    /// Callers with a key, who own their tasks in every mode.
    WithKey,
}

impl Callers {
    /// Flag for the process of a hub.
    fn flag(self) -> Option<&'static str> {
        (self == Self::WithKey).then_some("--key")
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::WithKey { ", with a key" } else { "" })
    }
}

impl fmt::Display for Middle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("direct"),
            Self::Nginx => f.write_str("nginx"),
            Self::Proxy(Subject::Nuncio, callers) => write!(f, "proxy{callers}"),
            Self::Proxy(subject, callers) => write!(f, "proxy, {subject}{callers}"),
            Self::ProxyToOld => f.write_str("proxy to JSON-RPC 0.3"),
            Self::ProxyToRest => f.write_str("proxy to HTTP+JSON 1.0"),
            Self::Durable(subject, callers) => write!(f, "durable, {subject}{callers}"),
            Self::Alone(subject, callers) => write!(f, "the hub's own agent, {subject}{callers}"),
            Self::Room(subject) => write!(f, "room, {subject}"),
        }
    }
}

/// Starts the intermediary in front of the agent at `behind`; `None` for a direct call.
pub(super) async fn start(middle: Middle, binding: Binding, behind: &str) -> Result<Option<Server>> {
    let url = format!("http://{behind}/agents/{AGENT}");
    let hub = |subject: Subject, how: Vec<&'static str>| {
        let place = Place::new(subject)?;
        let data = place.data.clone();
        let args: Vec<_> = ["hub", &url, &data].into_iter().chain(how).collect();
        Server::run(place, SERVER_CORE, &args)
    };
    Ok(Some(match middle {
        Middle::Nobody => return Ok(None),
        Middle::Nginx => nginx(binding, behind).await?,
        Middle::Proxy(subject, callers) => {
            hub(subject, ["--proxy"].into_iter().chain(callers.flag()).collect())?
        }
        Middle::ProxyToOld => hub(Subject::Nuncio, vec!["--proxy", "--version", "0.3"])?,
        Middle::ProxyToRest => hub(Subject::Nuncio, vec!["--proxy", "--binding", "HTTP+JSON"])?,
        Middle::Durable(subject, callers) => hub(subject, callers.flag().into_iter().collect())?,
        Middle::Room(subject) => hub(subject, vec!["--room"])?,
        Middle::Alone(subject, Callers::Anybody) => Server::start(subject)?,
        Middle::Alone(subject, Callers::WithKey) => Server::start_with_key(subject)?,
    }))
}

/// One process, connections kept on both sides, nothing written down.
async fn nginx(binding: Binding, behind: &str) -> Result<Server> {
    let place = Place::new(Subject::Nuncio)?;
    let folder = place.folder().display().to_string();
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (http2, pass) = match binding {
        Binding::Grpc => (" http2", "grpc_pass grpc://agent; grpc_set_header Host localhost;".to_owned()),
        Binding::JsonRpc | Binding::HttpJson => {
            let headers = r#"proxy_set_header Host localhost; proxy_set_header Connection "";"#;
            ("", format!("proxy_pass http://agent; proxy_http_version 1.1; proxy_buffering off; {headers}"))
        }
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {folder}/{what};\n"))
        .collect();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\n{temporary}keepalive_requests 1000000000;\n\
         upstream agent {{ server {behind}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen 127.0.0.1:{port}{http2}; location / {{ {pass} }} }}\n}}\n"
    );
    let file = format!("{folder}/nginx.conf");
    fs::write(&file, config)?;
    let program = ["nginx", "/usr/sbin/nginx"].into_iter().find(|program| {
        std::process::Command::new(program).arg("-v").stderr(std::process::Stdio::null()).status().is_ok()
    });
    let program =
        program.context("nginx is missing, beside which the hub is measured: apt-get install nginx")?;
    let args = ["-p", &folder, "-e", "stderr", "-c", &file];
    let child = process::start(SERVER_CORE, OsStr::new(program), &args)?;
    let server = Server::of(child, place, format!("127.0.0.1:{port}"));
    let begun = Instant::now();
    while TcpStream::connect(&server.address).is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(10), "nginx did not start: see above");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(server)
}

/// The process of a hub before an agent.
#[derive(Args)]
pub(crate) struct Between {
    /// URL of the agent.
    url: String,
    data: String,
    /// The agent keeps its own tasks.
    #[arg(long)]
    proxy: bool,
    /// Spoken to it, and no other.
    #[arg(long)]
    version: Option<String>,
    #[arg(long)]
    binding: Option<String>,
    /// Callers show a key.
    #[arg(long)]
    key: bool,
    /// Callers are in a room with the agent.
    #[arg(long)]
    room: bool,
}

impl Between {
    /// Prints its address, and the key; serves until it is killed.
    pub(crate) async fn serve(self) -> Result<()> {
        let mut upstream = Upstream::new(self.url.parse()?);
        if self.proxy {
            upstream.mode = Mode::Proxy;
        }
        upstream.version = self.version.as_deref().and_then(Version::parse);
        upstream.binding = self.binding.as_deref().and_then(Binding::from_name);
        let called = AGENT.parse().map_err(anyhow::Error::msg)?;
        let seated = "seated".parse().map_err(anyhow::Error::msg)?;
        let kind = AgentKind::Upstream(Box::new(upstream));
        let agents = if self.room {
            let agent_b = Some("seated".to_owned());
            let room = Room { name: called, agent_b, rounds: Rounds::Parallel, ..Room::default() };
            let seats = room.agents(AgentOrigin::Flag);
            seats.into_iter().chain([Agent::new(seated, kind, AgentOrigin::Flag)]).collect()
        } else {
            vec![Agent::new(called, kind, AgentOrigin::Flag)]
        };
        let config = Config {
            data: Storage::of(parse(&self.data)?),
            agents,
            drain_grace: Duration::ZERO,
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        let hub = Hub::bind(config).await?;
        if hub.served().is_empty() {
            bail!("the agent is not served");
        }
        tell(&hub, self.key).await?;
        Box::pin(hub.run(std::future::pending())).await
    }
}
