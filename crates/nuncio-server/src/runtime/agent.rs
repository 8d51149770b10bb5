//! The agent of a runtime: its name, card and executor, and the checks that follow from the card.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use nuncio_protocol::{
    AgentCard, CallContext, Caller, ContextId, Error, ErrorKind, Message, Result, wire::excerpt,
};

use super::{Limits, executor::Executor, hooks::Declared};
use crate::{size, store::Scope};

/// Makes the extended card for a caller; `None` if this caller has none.
pub(super) type ExtendedCard = Box<dyn Fn(&Caller) -> Option<AgentCard> + Send + Sync>;

pub(super) struct RuntimeAgent {
    pub(super) name: Arc<str>,
    /// The scope of anonymous callers without a tenant, by far the most frequent one.
    pub(super) anonymous: Arc<Scope>,
    /// The card and executor for new calls and executions.
    pub(super) current: ArcSwap<Current>,
    /// The extensions that the runtime adds to every card of this agent.
    pub(super) declared: Declared,
    pub(super) extended_card: Option<ExtendedCard>,
    pub(super) extended_card_is_open: bool,
    pub(super) refused_media_types: Vec<String>,
    /// Accepts parts of any media type, regardless of the card.
    pub(super) any_media_type: bool,
    /// The executor may be given the same message again, even if it does not declare itself idempotent.
    pub(super) idempotent: bool,
}

/// The parts of an agent that can be replaced while the runtime runs.
pub(super) struct Current {
    pub(super) card: Arc<AgentCard>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) rules: Rules,
}

/// Rules of messages and tasks, which a new configuration may change.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// The maximum number of parts of a message.
    pub(super) parts: usize,
    /// The maximum number of bytes of a task.
    pub(super) max_task_bytes: usize,
    /// The maximum time that a blocking send waits.
    pub(super) blocking_ceiling: Duration,
    /// The maximum time without an event of the executor; `None`: no limit.
    pub(super) silence: Option<Duration>,
    /// A task is canceled when the caller that waits for it has left.
    pub(super) cancel_on_disconnect: bool,
    /// The message id is the idempotency key of a message without one.
    pub(super) dedupe_message_id: bool,
}

impl RuntimeAgent {
    pub(super) fn current(&self) -> Guard<Arc<Current>> {
        self.current.load()
    }

    pub(super) fn rules(&self) -> Rules {
        self.current().rules
    }

    /// Gives new calls and executions this card, this executor and these rules.
    pub(super) fn replace(&self, mut card: AgentCard, executor: Arc<dyn Executor>, rules: Rules) {
        self.declared.on(&mut card);
        self.current.store(Arc::new(Current { card: Arc::new(card), executor, rules }));
    }

    /// The scope of the tasks that this call can see.
    pub(super) fn scope(&self, cx: &CallContext, tenant: Option<&str>) -> Arc<Scope> {
        // The tenant of the credential takes precedence over the tenant that the request names.
        let tenant = cx.caller.tenant().map(|tenant| &**tenant).or(tenant).or(cx.tenant.as_deref());
        if tenant.is_none() && cx.caller.principal().is_none() {
            return Arc::clone(&self.anonymous);
        }
        Arc::new(Scope {
            agent: Arc::clone(&self.name),
            tenant: tenant.map(Into::into),
            owner: cx.caller.principal().cloned(),
        })
    }

    /// True if the executor may be given the same message twice.
    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent || self.current().executor.is_idempotent()
    }

    /// Refuses a call that does not declare the extensions which the agent requires; the first check of each
    /// operation (REQ-077).
    pub(super) fn check_extensions(&self, cx: &CallContext) -> Result<()> {
        let current = self.current();
        let required = current.card.capabilities.extensions.iter().filter(|extension| extension.required);
        let missing: Vec<&str> =
            required.map(|extension| &*extension.uri).filter(|uri| !cx.declares(uri)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(",");
        Err(Error::new(ErrorKind::ExtensionSupportRequired, format!("declare in A2A-Extensions: {missing}"))
            .with_metadata("requiredExtensions", missing)
            .with_metadata("declaredExtensions", excerpt(cx.extensions.join(","))))
    }

    /// Refuses a streaming call if the card does not declare streaming (REQ-132).
    pub(super) fn check_streaming(&self) -> Result<()> {
        if self.current().card.capabilities.streaming == Some(true) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::UnsupportedOperation, "this agent does not stream"))
    }

    /// The extended card for this caller.
    pub(super) async fn extended_card(&self, cx: &CallContext) -> Result<AgentCard> {
        let current = self.current.load_full();
        if current.card.capabilities.extended_agent_card != Some(true) {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "this agent has no extended card"));
        }
        if !self.extended_card_is_open && cx.caller.principal().is_none() {
            return Err(ErrorKind::Unauthenticated.into());
        }
        let card = match &self.extended_card {
            Some(card) => card(&cx.caller),
            None => current.executor.extended_card(cx).await?,
        };
        let mut card = card.ok_or(ErrorKind::ExtendedAgentCardNotConfigured)?;
        self.declared.on(&mut card);
        Ok(card)
    }

    /// The refusal of an entry for a task that nothing executes.
    pub(super) fn over_limit(&self) -> Error {
        let max = self.rules().max_task_bytes;
        let why = format!(
            "the task would exceed its limit of {max} bytes (max_task_bytes); write less, or its end"
        );
        Error::new(ErrorKind::ResourceExhausted, why)
    }

    /// The error of an event that would make its task larger than `max_task_bytes`.
    pub(super) fn too_large(&self) -> Error {
        let max = self.rules().max_task_bytes;
        let why = format!("the task has reached its limit of {max} bytes (max_task_bytes) and was stopped");
        Error::new(ErrorKind::ResourceExhausted, why)
    }

    /// Refuses a message that is over a limit, or has a part of a media type that the agent does not accept.
    pub(super) fn check_message(&self, message: &Message, limits: &Limits) -> Result<()> {
        let Rules { parts: max, max_task_bytes, .. } = self.rules();
        if size::message(message) > max_task_bytes {
            let why = format!("a task may have {max_task_bytes} bytes (max_task_bytes)");
            return Err(Error::new(ErrorKind::PayloadTooLarge, why));
        }
        if message.parts.len() > max {
            return Err(Error::invalid_field("message.parts", format!("at most {max} parts are allowed")));
        }
        let ids = [
            ("message.messageId", Some(message.message_id.as_str())),
            ("message.contextId", message.context_id.as_ref().map(ContextId::as_str)),
        ];
        let references = message.reference_task_ids.iter();
        let references = references.map(|id| ("message.referenceTaskIds", Some(id.as_str())));
        for (field, id) in ids.into_iter().chain(references) {
            if id.is_some_and(|id| id.len() > limits.id_bytes) {
                return Err(Error::invalid_field(
                    field,
                    format!("at most {} bytes are allowed", limits.id_bytes),
                ));
            }
        }
        if message.reference_task_ids.len() > max {
            return Err(Error::invalid_field(
                "message.referenceTaskIds",
                format!("at most {max} references are allowed"),
            ));
        }
        let media_types =
            message.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.media_type.as_deref()?)));
        for (i, media_type) in media_types {
            if !self.accepts(media_type) {
                let media_type = excerpt(media_type.to_owned());
                return Err(Error::new(
                    ErrorKind::ContentTypeNotSupported,
                    format!("message.parts[{i}].mediaType: this agent does not take {media_type}"),
                )
                .with_metadata("mediaType", media_type));
            }
        }
        Ok(())
    }

    /// True if the agent accepts parts of this media type (REQ-105).
    fn accepts(&self, media_type: &str) -> bool {
        let refused = self.refused_media_types.iter().any(|refused| match refused.strip_suffix('*') {
            Some(prefix) => media_type.starts_with(prefix),
            None => media_type == refused,
        });
        !refused && (self.any_media_type || self.current().card.accepts_input(media_type))
    }
}
