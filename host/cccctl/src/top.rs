// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Groups and VMs again and again: on a screen of their own, or line by line where there is
//! none, for whoever keeps them.
mod screen;

use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::Value;

use crate::{
    client::Client,
    commands::{Error, print},
    views::{self, list, word},
};
use screen::Screen;

/// Lines that a page key scrolls.
const PAGE: u16 = 10;

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Time between two.
    pub interval: Duration,
    /// How many, if there is an end to them.
    pub count: Option<u64>,
    /// As JSON.
    pub json: bool,
}

/// Looks until somebody has seen enough.
pub fn run(client: &Client, looks: Looks, out: &mut impl Write) -> Result<(), Error> {
    if looks.json || looks.count.is_some() || !io::stdout().is_terminal() {
        return lines(client, looks, out);
    }
    // What is wrong from the start is told as by any other command.
    let groups = client.get("/v1/groups")?;
    let mut screen = Screen { groups, ..Screen::default() };
    let mut terminal = ratatui::try_init()?;
    let done = show(client, looks.interval, &mut screen, &mut terminal);
    ratatui::try_restore()?;
    Ok(done?)
}

fn show(
    client: &Client,
    interval: Duration,
    screen: &mut Screen,
    terminal: &mut DefaultTerminal,
) -> io::Result<()> {
    loop {
        let looked = Instant::now();
        while looked.elapsed() < interval {
            terminal.draw(|frame| screen.draw(frame))?;
            if event::poll(interval.saturating_sub(looked.elapsed()))? {
                match event::read()? {
                    Event::Key(key) if ends(key) => return Ok(()),
                    Event::Key(key) => scroll(screen, key.code),
                    _ => {}
                }
            }
        }
        match client.get("/v1/groups") {
            Ok(groups) => (screen.groups, screen.trouble) = (groups, None),
            // It may be restarting.
            Err(error) => screen.trouble = Some(error.to_string()),
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn scroll(screen: &mut Screen, key: KeyCode) {
    screen.scrolled = match key {
        KeyCode::Up => screen.scrolled.saturating_sub(1),
        KeyCode::Down => screen.scrolled.saturating_add(1),
        KeyCode::PageUp => screen.scrolled.saturating_sub(PAGE),
        KeyCode::PageDown => screen.scrolled.saturating_add(PAGE),
        KeyCode::Home => 0,
        KeyCode::End => u16::MAX,
        _ => screen.scrolled,
    };
}

fn lines(client: &Client, looks: Looks, out: &mut impl Write) -> Result<(), Error> {
    let mut seen = 0;
    loop {
        let groups = client.get("/v1/groups")?;
        print(out, looks.json, &groups, &text(&groups))?;
        seen += 1;
        if looks.count.is_some_and(|count| seen >= count) {
            return Ok(());
        }
        thread::sleep(looks.interval);
    }
}

/// All groups, and the VMs of those in which something is sent.
fn text(groups: &Value) -> String {
    let busy = list(&groups["groups"]).iter().filter(|group| group["active_flows"] != 0);
    let parts = busy.map(|group| format!("\n{}\n{}", word(&group["name"]), views::parts(group)));
    format!("{}{}", views::groups(groups), parts.collect::<String>())
}
