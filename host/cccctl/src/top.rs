// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Groups and VMs again and again: on a screen of their own, or line by line where there is
//! none, for whoever keeps them.
mod screen;

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::Value;

use crate::{
    client::{Client, ClientError, Patience},
    commands::Error,
    form::Form,
    views::{self, list, word},
};
use screen::Screen;

/// Between two looks whether there is something new.
const STEP: Duration = Duration::from_millis(100);
/// An answer that takes longer is late.
const LATE: Duration = Duration::from_secs(1);
/// Lines that a page key scrolls.
const PAGE: u16 = 10;

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Time between two.
    pub interval: Duration,
    /// How many, if there is an end to them.
    pub count: Option<u64>,
    /// In which form.
    pub form: Form,
}

/// Looks until somebody has seen enough.
pub fn run(client: &Client, looks: Looks, out: &mut impl Write) -> Result<(), Error> {
    if looks.form != Form::Text || looks.count.is_some() || !io::stdout().is_terminal() {
        return lines(client, looks, out);
    }
    // What is wrong from the start is told as by any other command.
    let groups = client.get("/v1/groups")?;
    let mut screen = Screen { groups, ..Screen::default() };
    let mut asked = Asked::start(Client::new(client.socket(), Patience::OPERATOR)?, looks.interval);
    let mut terminal = ratatui::try_init()?;
    let done = show(&mut asked, &mut screen, &mut terminal);
    ratatui::try_restore()?;
    Ok(done?)
}

/// Asks the daemon in a thread of its own, which ends with the program: one that hangs keeps
/// nobody from scrolling or leaving.
struct Asked {
    answers: Receiver<Result<Value, ClientError>>,
    /// When it last answered.
    heard: Instant,
    interval: Duration,
}

impl Asked {
    fn start(client: Client, interval: Duration) -> Asked {
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || {
            loop {
                thread::sleep(interval);
                if tell.send(client.get("/v1/groups")).is_err() {
                    return;
                }
            }
        });
        Asked { answers, heard: Instant::now(), interval }
    }

    /// Shows what has come, or that nothing does.
    fn take(&mut self, screen: &mut Screen) {
        for answer in self.answers.try_iter() {
            match answer {
                Ok(groups) => (screen.groups, screen.trouble) = (groups, None),
                // It may be restarting.
                Err(error) => screen.trouble = Some(error.to_string()),
            }
            self.heard = Instant::now();
        }
        let silent = self.heard.elapsed().saturating_sub(self.interval);
        if silent >= LATE {
            let told = format!("the daemon does not answer, for {} s now", silent.as_secs());
            screen.trouble = Some(told);
        }
    }
}

fn show(asked: &mut Asked, screen: &mut Screen, terminal: &mut DefaultTerminal) -> io::Result<()> {
    loop {
        asked.take(screen);
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(STEP)? {
            match event::read()? {
                Event::Key(key) if ends(key) => return Ok(()),
                Event::Key(key) => scroll(screen, key.code),
                _ => {}
            }
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
        looks.form.print(out, &groups, &text(&groups))?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_that_hangs_is_told_and_one_that_answers_again_is_shown() {
        let (tell, answers) = mpsc::channel();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(5)).expect("a time");
        let mut asked = Asked { answers, heard: long_ago, interval: Duration::from_secs(1) };
        let mut screen = Screen::default();
        asked.take(&mut screen);
        let told = screen.trouble.take().expect("trouble");
        assert_eq!(told, "the daemon does not answer, for 4 s now");
        tell.send(Ok(json!({"groups": []}))).expect("sent");
        asked.take(&mut screen);
        assert_eq!((screen.trouble, screen.groups), (None, json!({"groups": []})));
    }
}
