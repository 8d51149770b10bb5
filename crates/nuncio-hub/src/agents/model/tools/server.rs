//! The connection to a server of tools: made when it is needed, kept, and made again when it is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        PaginatedRequestParams, ProtocolVersion, Tool,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt as _, NotificationContext, RunningService, ServiceError,
    },
    transport::{
        async_rw::AsyncRwTransport,
        streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig},
    },
};
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Listed, MAX_TOOLS, Outcome,
    http::{HttpClient, MAX_ANSWER_BYTES},
    program::Program,
    text,
};
use crate::config::{Command, NamedTools, ToolTarget};

/// The time for a connection with its list of tools. A program may have to fetch itself first.
pub(in crate::agents::model) const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of tools.
pub(super) struct Server {
    agent: Arc<str>,
    name: String,
    way: Way,
    timeout: Duration,
    /// Held while it is made, so that messages do not start a program each.
    connection: Mutex<Option<Arc<Connection>>>,
}

/// The way to a server.
enum Way {
    Program(Box<Command>),
    Http(HttpClient),
}

/// A connection, and the tools that it has listed.
struct Connection {
    service: RunningService<RoleClient, Handler>,
    tools: Mutex<Option<Arc<Vec<Listed>>>>,
    are_stale: Arc<AtomicBool>,
    /// After the service, which closes its input first.
    _program: Option<Program>,
}

/// Our side of the protocol: without capabilities, so that servers ask nothing of us.
struct Handler {
    tools_are_stale: Arc<AtomicBool>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("nuncio", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_are_stale.store(true, Ordering::Relaxed);
    }
}

impl Server {
    /// Prepares the server. Makes no call, and starts nothing.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(super) fn open(agent: &Arc<str>, settings: &NamedTools) -> Result<Self> {
        let NamedTools { name, target, timeout } = settings;
        let way = match target {
            ToolTarget::Program(command) => Way::Program(command.clone()),
            ToolTarget::Remote(url, auth) => {
                let client = HttpClient::open(url, auth);
                Way::Http(client.with_context(|| format!("the tools {name} cannot be used"))?)
            }
        };
        let (agent, name) = (Arc::clone(agent), name.clone());
        Ok(Self { agent, name, way, timeout: *timeout, connection: Mutex::default() })
    }

    /// The name of its table.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The tools of the server.
    ///
    /// # Errors
    /// The cause, for the log.
    pub(super) async fn list(&self) -> Result<Arc<Vec<Listed>>, String> {
        let listing = async { self.connected().await?.list().await };
        match timeout(CONNECT_TIMEOUT, listing).await {
            Ok(Ok(tools)) => Ok(tools),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("no list of tools within {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }

    /// Calls a tool once. A connection that breaks meanwhile is not a reason to call it again.
    pub(super) async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Outcome {
        let connection = match timeout(CONNECT_TIMEOUT, self.connected()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                self.warn(tool, &format!("{error:#}"));
                return Outcome::error("the tool was not called: its server cannot be reached");
            }
            Err(_) => {
                self.warn(tool, "no connection in time");
                return Outcome::error("the tool was not called: its server cannot be reached");
            }
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        // Dropping the call tells the server that nobody waits any more.
        match timeout(self.timeout, connection.service.call_tool_once(params)).await {
            Ok(Ok(CallToolResponse::Complete(result))) => text::of_server(result),
            Ok(Ok(_)) => {
                Outcome::error("the tool needs more input than a model can give, which is not supported")
            }
            Ok(Err(ServiceError::McpError(error))) => Outcome::error(error.message.into_owned()),
            Ok(Err(error)) => {
                self.warn(tool, &error.to_string());
                Outcome::error("the connection to the server broke; the call may have been done")
            }
            Err(_) => {
                let limit = self.timeout.as_secs();
                Outcome::error(format!("no result within {limit} s; the call may have been done"))
            }
        }
    }

    fn warn(&self, tool: &str, cause: &str) {
        tracing::warn!(agent = &*self.agent, server = self.name, tool, cause, "a tool of a model failed");
    }

    /// The connection, made anew if the last one is gone.
    async fn connected(&self) -> Result<Arc<Connection>> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection
            && !connection.service.is_transport_closed()
            && !connection.service.is_closed()
        {
            return Ok(Arc::clone(connection));
        }
        *connection = None;
        let made = Arc::new(self.connect().await?);
        *connection = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Connects by `initialize`, which servers of every version of the protocol know, or else by `server/discover`. Not the
    /// other way round: a program that starts slowly would get both questions.
    async fn connect(&self) -> Result<Connection> {
        let newest = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        match self.connect_by(ClientLifecycleMode::Initialize).await {
            Ok(connection) => Ok(connection),
            // The first error is the one that most servers mean.
            Err(error) => self.connect_by(newest).await.map_err(|_| error),
        }
    }

    async fn connect_by(&self, lifecycle: ClientLifecycleMode) -> Result<Connection> {
        let are_stale = Arc::new(AtomicBool::new(false));
        let handler = Handler { tools_are_stale: Arc::clone(&are_stale) };
        let (service, program) = match &self.way {
            Way::Program(command) => {
                let (program, stdout, stdin) = Program::start(command, &self.name)?;
                let transport =
                    AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MAX_ANSWER_BYTES);
                (handler.serve_with_lifecycle(transport, lifecycle).await?, Some(program))
            }
            Way::Http(client) => {
                let config = StreamableHttpClientTransportConfig::with_uri(client.url())
                    .max_sse_event_size(MAX_ANSWER_BYTES);
                let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
                (handler.serve_with_lifecycle(transport, lifecycle).await?, None)
            }
        };
        tracing::debug!(agent = &*self.agent, server = self.name, "connected to a server of tools");
        Ok(Connection { service, tools: Mutex::default(), are_stale, _program: program })
    }
}

impl Connection {
    /// The tools, as the server listed them last.
    async fn list(&self) -> Result<Arc<Vec<Listed>>> {
        let mut tools = self.tools.lock().await;
        let is_stale = self.are_stale.swap(false, Ordering::Relaxed);
        if let Some(tools) = tools.as_ref().filter(|_| !is_stale) {
            return Ok(Arc::clone(tools));
        }
        let mut listed = Vec::new();
        let mut cursor = None;
        loop {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(page)).await?;
            listed.extend(page.tools.into_iter().map(listed_tool));
            cursor = page.next_cursor;
            if cursor.is_none() || listed.len() > MAX_TOOLS {
                break;
            }
        }
        let listed = Arc::new(listed);
        *tools = Some(Arc::clone(&listed));
        Ok(listed)
    }
}

fn listed_tool(tool: Tool) -> Listed {
    let hints = tool.annotations.unwrap_or_default();
    let is_true = |hint: Option<bool>| hint == Some(true);
    Listed {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().into_owned(),
        schema: Value::Object(Map::clone(&tool.input_schema)),
        is_repeatable: is_true(hints.read_only_hint) || is_true(hints.idempotent_hint),
    }
}
