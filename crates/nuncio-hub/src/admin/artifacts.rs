//! The artifacts of tasks: listed without their content, and a part with it.

use std::sync::Arc;

use nuncio_protocol::{Content, Part};

use super::{
    AdminState,
    api::{ArtifactPart, ListTaskArtifacts, PartKind, ShowArtifactPart, TaskArtifact, TaskArtifacts},
    endpoint::Reply,
    problem::AdminProblem,
    tasks::find,
};

pub(super) async fn list(
    state: Arc<AdminState>,
    request: ListTaskArtifacts,
) -> Result<Reply<TaskArtifacts>, AdminProblem> {
    let (_, stored) = find(&state, &request.id).await?;
    let artifacts = stored.task.artifacts.iter().map(|artifact| TaskArtifact {
        id: artifact.artifact_id.to_string(),
        name: Some(artifact.name.clone()).filter(|name| !name.is_empty()),
        parts: artifact.parts.iter().zip(1..).map(|(part, number)| shown(part, number)).collect(),
    });
    Ok(Reply::new(TaskArtifacts { artifacts: artifacts.collect() }))
}

pub(super) async fn part(
    state: Arc<AdminState>,
    request: ShowArtifactPart,
) -> Result<Reply<ArtifactPart>, AdminProblem> {
    let ShowArtifactPart { id, artifact, number } = request;
    let (_, stored) = find(&state, &id).await?;
    let mut artifacts = stored.task.artifacts.iter();
    let found = artifacts.find(|known| known.artifact_id.as_str() == artifact);
    let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let part = found.zip(index).and_then(|(found, index)| found.parts.get(index));
    let part = part.ok_or_else(|| {
        AdminProblem::not_found(format!(
            "the task has no part {number} of an artifact {artifact}; GET /api/v1/tasks/{id}/artifacts lists them"
        ))
    })?;
    let value = serde_json::to_value(part).map_err(|_| AdminProblem::internal())?;
    Ok(Reply::new(ArtifactPart { part: Some(value), ..shown(part, index.unwrap_or_default() + 1) }))
}

fn shown(part: &Part, number: usize) -> ArtifactPart {
    let (kind, bytes) = match &part.content {
        Content::Text(text) => (PartKind::Text, text.len()),
        Content::Raw(bytes) => (PartKind::Raw, bytes.len()),
        Content::Url(url) => (PartKind::Url, url.len()),
        Content::Data(data) => (PartKind::Data, data.as_str().len()),
    };
    let (filename, media_type) = (part.filename.clone(), part.media_type.clone());
    ArtifactPart { number, kind, filename, media_type, bytes, part: None }
}
