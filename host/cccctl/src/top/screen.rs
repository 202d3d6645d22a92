// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the screen of `cccctl top` shows of the daemon's answers.
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};
use serde_json::Value;

use crate::views::{list, word};

/// Cells of a bar.
const BAR: usize = 40;
/// Eighths of a cell, from none to all.
const EIGHTHS: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
/// Off its share by more of it, a VM is looked at twice.
const OFF: f64 = 0.1;

/// What is looked at.
#[derive(Debug, Default)]
pub struct Screen {
    /// The daemon's groups, as it last told them.
    pub groups: Value,
    /// Why it does not tell them now.
    pub trouble: Option<String>,
    /// Lines that are above the screen.
    pub scrolled: u16,
}

impl Screen {
    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let [body, foot] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let lines: Vec<Line<'_>> = list(&self.groups["groups"]).iter().flat_map(group).collect();
        let beyond = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(body.height);
        self.scrolled = self.scrolled.min(beyond);
        frame.render_widget(Paragraph::new(lines).scroll((self.scrolled, 0)), body);
        frame.render_widget(self.foot(), foot);
    }

    fn foot(&self) -> Line<'static> {
        match &self.trouble {
            Some(trouble) => Line::from(format!("not of now: {trouble}")).red(),
            None => {
                Line::from("│ is what floor, cap and weight say   arrows scroll, q quits").dim()
            }
        }
    }
}

/// A group: a line, and one for each of its VMs.
fn group(of: &Value) -> Vec<Line<'static>> {
    let mut lines = vec![heading(of)];
    lines.extend(list(&of["vms"]).iter().map(member));
    lines.push(Line::default());
    lines
}

fn heading(of: &Value) -> Line<'static> {
    let path = &of["path"];
    let rate = path["rate"].as_f64().unwrap_or(0.0) * 8e-6;
    let queue = path["queue_us"].as_f64().unwrap_or(0.0) / 1e3;
    let flows = of["active_flows"].as_u64().unwrap_or(0);
    let others = if path["shared"] == true { ", shared with others" } else { "" };
    let alone = match (&of["coupled"], &of["trial"]["coupled"]) {
        (Value::Bool(false), _) => ", NOT COUPLED",
        (_, Value::Bool(false)) => ", NOT COUPLED for a trial",
        (_, Value::Bool(true)) => ", on trial",
        _ => "",
    };
    let said =
        format!("  {rate:.2} Mbit/s, {queue:.1} ms queue, {flows} active flows{others}{alone}");
    Line::from(vec![Span::from(word(&of["name"])).bold(), Span::from(said)])
}

/// A VM: its share of what was delivered of late, beside its due.
fn member(vm: &Value) -> Line<'static> {
    let due = vm["due_permille"].as_f64().map(|permille| permille / 1000.0);
    let share = vm["conduct"]["delivered_permille"].as_f64().unwrap_or(0.0) / 1000.0;
    let flows = vm["flows"].as_u64().unwrap_or(0);
    let name: String = word(&vm["name"]).chars().take(20).collect();
    let told = due.map_or("     -".to_owned(), |due| format!("{:5.1}%", due * 100.0));
    Line::from(vec![
        Span::from(format!("  {name:<20} {flows:>6} flows {:5.1}% of {told} ", share * 100.0)),
        Span::styled(bar(share, due), color(vm, share, due)),
        Span::from(trouble(vm)),
    ])
}

fn color(vm: &Value, share: f64, due: Option<f64>) -> Style {
    if !trouble(vm).is_empty() {
        return Style::new().fg(Color::Red);
    }
    let off = due.is_some_and(|due| (share / due - 1.0).abs() > OFF);
    Style::new().fg(if off { Color::Yellow } else { Color::Green })
}

/// What an operator should look at.
fn trouble(vm: &Value) -> String {
    let found = [
        (!vm["tap"]["verdict"].is_null(), " judged"),
        (vm["evidence"]["apart"] == true, " apart"),
        (vm["conduct"]["alone"] == true, " loses alone"),
    ];
    found.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect()
}

/// A bar of a share, with a mark at what is due.
fn bar(share: f64, due: Option<f64>) -> String {
    let eighths = |part: f64| (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let (filled, mark) = (eighths(share), due.map(|due| (eighths(due) / 8).min(BAR - 1)));
    let cell = |cell: usize| match mark {
        Some(mark) if mark == cell => "│",
        _ => EIGHTHS[filled.saturating_sub(cell * 8).min(8)],
    };
    (0..BAR).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::json;

    use super::*;

    fn drawn(screen: &mut Screen, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, height)).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn two() -> Value {
        let vm = |name: &str, due: Option<u32>, flows: u32, permille: u32| {
            json!({
                "name": name, "weight": 1, "flows": flows, "due_permille": due,
                "conduct": {"delivered_permille": permille, "alone": false},
                "evidence": {"apart": false}, "tap": null})
        };
        let vms =
            [vm("web", Some(750), 1, 750), vm("db", Some(250), 16, 250), vm("idle", None, 0, 0)];
        let path = json!({"rate": 1_181_250, "queue_us": 5_400, "shared": false});
        json!({"groups": [
            {"name": "uplink", "coupled": true, "active_flows": 17, "path": path, "vms": vms}]})
    }

    #[test]
    fn shares_are_bars_beside_what_is_due() {
        let mut screen = Screen { groups: two(), ..Screen::default() };
        let lines = drawn(&mut screen, 6);
        assert_eq!(lines[0], "uplink  9.45 Mbit/s, 5.4 ms queue, 17 active flows");
        let bar = "█".repeat(30) + "│";
        assert_eq!(lines[1], format!("  web                       1 flows  75.0% of  75.0% {bar}"));
        let bar = "█".repeat(10) + "│";
        assert_eq!(lines[2], format!("  db                       16 flows  25.0% of  25.0% {bar}"));
        assert_eq!(lines[3], "  idle                      0 flows   0.0% of      -");
        assert!(lines[5].ends_with("q quits"), "{lines:?}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut groups = two();
        groups["groups"][0]["coupled"] = json!(false);
        groups["groups"][0]["vms"][1]["tap"] = json!({"verdict": {"reason": "unreported"}});
        let mut screen = Screen { groups, trouble: Some("nobody listens".to_owned()), scrolled: 0 };
        let lines = drawn(&mut screen, 6);
        assert!(lines[0].ends_with("NOT COUPLED"), "{lines:?}");
        assert!(lines[2].ends_with("judged"), "{lines:?}");
        assert_eq!(lines[5], "not of now: nobody listens");
    }

    #[test]
    fn more_than_fits_can_be_scrolled_to_its_end() {
        let mut screen = Screen { groups: two(), scrolled: 99, ..Screen::default() };
        let lines = drawn(&mut screen, 3);
        assert_eq!(screen.scrolled, 3);
        assert!(lines[0].starts_with("  idle"), "{lines:?}");
    }

    #[test]
    fn answers_of_another_form_are_shown_as_far_as_they_go() {
        let mut screen =
            Screen { groups: json!({"groups": [{"vms": [{}]}, 7]}), ..Screen::default() };
        assert!(drawn(&mut screen, 4)[1].contains("0 flows"));
    }

    #[test]
    fn bars_have_eighths_and_a_mark() {
        assert_eq!(bar(1.5, None), "█".repeat(BAR));
        assert_eq!(bar(0.5 / BAR as f64, None), format!("▌{}", " ".repeat(BAR - 1)));
        assert_eq!(bar(0.0, Some(1.0)), format!("{}│", " ".repeat(BAR - 1)));
    }
}
