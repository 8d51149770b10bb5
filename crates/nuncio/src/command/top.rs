//! `nuncio top`: the figures of a hub and its events, on a terminal.

mod screen;

use std::{collections::VecDeque, io::IsTerminal as _, process::ExitCode};

use anyhow::Result;
use nuncio_client::EventAnswer;
use nuncio_hub::admin::api::{
    EventKind, EventOptions, FollowEvents, HubEvent, ShowStats, Stats, StatsOptions,
};
use tokio::time::MissedTickBehavior;

use super::signals::Signals;
use crate::{
    args::{Admin, Top},
    output::{self, Format},
};

/// The number of events that are shown.
const MAX_EVENTS: usize = 12;

pub(super) async fn run(top: Top, format: Format) -> Result<ExitCode> {
    let Top { hub, once, interval } = top;
    let stats = stats(&hub).await?;
    if format == Format::Json {
        output::json(&stats)?;
        if once {
            return Ok(ExitCode::SUCCESS);
        }
    } else if once || !std::io::stdout().is_terminal() {
        screen::lines(&stats).iter().try_for_each(|line| output::row(line))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::listen()?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut view = View { hub, stats, trouble: None, events: VecDeque::new(), cursor: None, stream: None };
    let _screen = (format == Format::Human).then(output::Screen::open);
    loop {
        if format == Format::Human {
            view.draw()?;
        }
        tokio::select! {
            () = signals.next() => return Ok(ExitCode::SUCCESS),
            _ = ticks.tick() => {
                view.update().await;
                if format == Format::Json {
                    output::json(&view.stats)?;
                }
            }
            event = next(view.stream.as_mut()), if format == Format::Human => view.take(event),
        }
    }
}

async fn stats(hub: &Admin) -> Result<Stats> {
    hub.call(&ShowStats { options: StatsOptions::default() }).await
}

/// The next event; waits for ever without a stream.
async fn next(stream: Option<&mut EventAnswer>) -> Option<HubEvent> {
    match stream {
        Some(stream) => {
            let event = stream.next().await.ok()??;
            serde_json::from_str(&event.data).ok()
        }
        None => std::future::pending().await,
    }
}

/// The state of the view: the last figures, the last events, and the trouble with the hub.
struct View {
    hub: Admin,
    stats: Stats,
    trouble: Option<String>,
    /// The newest first.
    events: VecDeque<HubEvent>,
    cursor: Option<String>,
    stream: Option<EventAnswer>,
}

impl View {
    /// Reads the figures, and opens the stream of events if there is none. A hub that is away may come back, with
    /// another token.
    async fn update(&mut self) {
        match stats(&self.hub).await {
            Ok(stats) => (self.stats, self.trouble) = (stats, None),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
        if self.stream.is_none() && self.trouble.is_none() {
            let options = EventOptions { after: self.cursor.clone() };
            self.stream = self.hub.follow(&FollowEvents { options }).await.ok();
        }
    }

    /// Takes an event; `None` ends the stream, which the next update opens again.
    fn take(&mut self, event: Option<HubEvent>) {
        let Some(event) = event else {
            self.stream = None;
            return;
        };
        self.cursor = Some(event.cursor.clone());
        if event.kind != EventKind::Reset {
            self.events.push_front(event);
            self.events.truncate(MAX_EVENTS);
        }
    }

    fn draw(&self) -> Result<()> {
        let mut lines = screen::lines(&self.stats);
        lines.push(String::new());
        lines.extend(self.trouble.clone());
        lines.extend(self.events.iter().map(screen::event));
        output::frame(&lines)
    }
}
