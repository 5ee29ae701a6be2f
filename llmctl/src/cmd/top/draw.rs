//! Draws the page of `llmctl top` into a frame of any size. Texts of others pass through [`tame`].

use std::time::Instant;

use chrono::DateTime;
use proto::admin::Severity;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};
use router::Switch;

use super::view::{Mode, Pane, PeerRow, RequestRow, State, View};
use crate::render::tame;

/// Problems that are shown at once; the last line says how many more there are.
const PROBLEMS_MAX: usize = 4;

/// A frame for terminals that cannot draw lines.
const ASCII: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws the whole page.
pub(super) fn page(view: &View, now: Instant, frame: &mut Frame<'_>) {
    let problems = problems(view);
    let height = u16::try_from(problems.len()).unwrap_or(u16::MAX);
    let [head, above, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(height),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(heading(view, now)).style(bold()), head);
    frame.render_widget(Paragraph::new(problems), above);
    match view.pane {
        Pane::Fleet => fleet(view, frame, body),
        Pane::Requests => requests(view, frame, body),
    }
    frame.render_widget(Line::from(footer(view)), foot);
    match &view.mode {
        Mode::Table | Mode::Filter => {}
        Mode::Switches { route, at } => switches(view, route, *at, frame),
        Mode::Confirm(change) => {
            let word = if change.on { "on" } else { "off" };
            let where_ = match view.members.len() {
                1 => String::new(),
                count => format!(" on {count} routers"),
            };
            let question = format!(
                "Switch {} of {} {word}{where_}? It lasts until it is reset. y / n",
                change.switch.name(),
                tame(&change.route)
            );
            dialog(view, frame, "confirm", vec![Line::from(question)]);
        }
    }
}

fn block(view: &View) -> Block<'static> {
    match view.ascii {
        true => Block::bordered().border_set(ASCII),
        false => Block::bordered(),
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn paint(view: &View, colour: Color) -> Style {
    match view.colour {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

fn heading(view: &View, now: Instant) -> String {
    let routers = match &view.members[..] {
        [one] => tame(&one.url).into_owned(),
        several => format!("{} routers", several.len()),
    };
    let age = match view.age(now).map(|age| age.as_secs()) {
        None => "asking ...".to_owned(),
        Some(0 | 1) if !view.frozen => "now".to_owned(),
        Some(seconds) => format!("numbers are {seconds} s old"),
    };
    let frozen = if view.frozen { "  FROZEN" } else { "" };
    format!("llmctl top  {routers}  {age}{frozen}")
}

fn problems(view: &View) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for member in &view.members {
        if let Some(error) = &member.error {
            let text = match error.contains(&member.url) {
                true => tame(error).into_owned(),
                false => format!("{}: {}", tame(&member.url), tame(error)),
            };
            lines.push(Line::styled(text, paint(view, Color::Red)));
        }
    }
    let found = view.problems();
    for finding in &found {
        let colour = match finding.severity {
            Severity::Critical => Color::Red,
            Severity::Warning => Color::Yellow,
            Severity::Info => Color::Reset,
        };
        let route = finding
            .route
            .as_deref()
            .map_or(String::new(), |route| format!("{}: ", tame(route)));
        let text = format!(
            "{}: {route}{}",
            finding.severity.as_str(),
            tame(&finding.text)
        );
        lines.push(Line::styled(text, paint(view, colour)));
    }
    if lines.len() > PROBLEMS_MAX {
        let more = lines.len() - PROBLEMS_MAX + 1;
        lines.truncate(PROBLEMS_MAX - 1);
        lines.push(Line::from(format!("and {more} more: llmctl status")));
    }
    lines
}

fn fleet(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let rows = view.peers();
    let mut head = vec!["ROUTE".to_owned(), "PEER".to_owned(), "STATE".to_owned()];
    match view.members.len() {
        1 => head.push("IN FLIGHT".to_owned()),
        count => head.extend((1..=count).map(|n| format!("R{n}"))),
    }
    head.extend(["MAX", "TTFT", "FAILED", "HITS"].map(str::to_owned));
    let mut widths = vec![
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(9),
    ];
    widths.extend(
        view.members
            .iter()
            .map(|_| Constraint::Length(if view.members.len() == 1 { 9 } else { 4 })),
    );
    widths.extend([5, 8, 7, 5].map(Constraint::Length));
    let title = format!(
        " Fleet  {} peers, sorted by {} ",
        rows.len(),
        view.sorted_by()
    );
    let rows = rows.iter().map(|row| peer(view, row));
    let table = Table::new(rows, widths).header(Row::new(head).style(bold()));
    show(view, table, &title, frame, area);
}

fn peer(view: &View, row: &PeerRow) -> Row<'static> {
    let colour = match row.state {
        State::Fine("disabled") => Color::DarkGray,
        State::Fine(_) => Color::Green,
        State::Busy(_) => Color::Yellow,
        State::Out(_) => Color::Red,
    };
    let dash = || "-".to_owned();
    let mut cells = vec![
        Cell::from(tame(&row.route).into_owned()),
        Cell::from(tame(&row.name).into_owned()),
        Cell::from(row.state.word()).style(paint(view, colour)),
    ];
    let counts = row.in_flight.iter();
    cells
        .extend(counts.map(|count| Cell::from(count.map_or_else(dash, |count| count.to_string()))));
    cells.push(Cell::from(row.max.to_string()));
    cells.push(Cell::from(
        row.ttft_ms.map_or_else(dash, |ms| format!("{ms} ms")),
    ));
    let failed = Cell::from(match (row.failed, row.attempts) {
        (0, 0) => dash(),
        (0, _) => "0".to_owned(),
        (failed, attempts) => format!("{failed}/{attempts}"),
    });
    cells.push(match row.failed {
        0 => failed,
        _ => failed.style(paint(view, Color::Red)),
    });
    cells.push(Cell::from(
        row.hits.map_or_else(dash, |percent| format!("{percent} %")),
    ));
    Row::new(cells)
}

fn requests(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let rows = view.requests();
    let head = [
        "ENDED", "ID", "ROUTE", "PEER", "STATUS", "TTFT", "TOOK", "TOKENS",
    ];
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(2),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(11),
    ];
    let title = format!(
        " Requests  {} ended, sorted by {} ",
        rows.len(),
        view.sorted_by()
    );
    let rows = rows.iter().map(|row| request(view, row));
    let table = Table::new(rows, widths).header(Row::new(head).style(bold()));
    show(view, table, &title, frame, area);
}

fn request(view: &View, row: &RequestRow) -> Row<'static> {
    let ended = i64::try_from(row.at_unix_ms.saturating_add(row.duration_ms)).ok();
    let ended = ended.and_then(DateTime::from_timestamp_millis);
    let colour = match row.status {
        500.. => Color::Red,
        400.. => Color::Yellow,
        _ => Color::Green,
    };
    Row::new([
        Cell::from(ended.map_or_else(
            || "-".to_owned(),
            |ended| ended.format("%H:%M:%S").to_string(),
        )),
        Cell::from(tame(&row.id).into_owned()),
        Cell::from(tame(&row.route).into_owned()),
        Cell::from(match &*row.peer {
            "-" => tame(&row.mode).into_owned(),
            peer => tame(peer).into_owned(),
        }),
        Cell::from(row.status.to_string()).style(paint(view, colour)),
        Cell::from(
            row.ttft_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms")),
        ),
        Cell::from(format!("{} ms", row.duration_ms)),
        Cell::from(row.tokens.map_or_else(
            || "-".to_owned(),
            |(prompt, output)| format!("{prompt}+{output}"),
        )),
    ])
}

fn show(view: &View, table: Table<'_>, title: &str, frame: &mut Frame<'_>, area: Rect) {
    let table = table
        .block(block(view).title(title.to_owned()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(1);
    let mut state = TableState::new().with_selected(Some(view.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

fn footer(view: &View) -> Vec<Span<'static>> {
    if view.mode == Mode::Filter {
        return vec![Span::styled(
            format!("filter: {}_", tame(&view.filter)),
            bold(),
        )];
    }
    if let Some(note) = &view.note {
        return vec![Span::raw(tame(note).into_owned())];
    }
    let filter = match &*view.filter {
        "" => String::new(),
        filter => format!("  [filter: {}]", tame(filter)),
    };
    vec![Span::raw(format!(
        "Tab view  s sort  / filter  f freeze  t switch  q quit{filter}"
    ))]
}

fn switches(view: &View, route: &str, at: usize, frame: &mut Frame<'_>) {
    let lines = Switch::ALL.iter().enumerate().map(|(index, switch)| {
        let stands = match view.switch(route, *switch) {
            Some(true) => "on",
            Some(false) => "off",
            None => "-",
        };
        let line = Line::from(format!("{:<20} {stands}", switch.name()));
        match index == at {
            true => line.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        }
    });
    let title = format!("switches of {} (Enter changes, Esc leaves)", tame(route));
    dialog(view, frame, &title, lines.collect());
}

fn dialog(view: &View, frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>) {
    let area = frame.area();
    let wanted = lines
        .iter()
        .map(Line::width)
        .max()
        .unwrap_or(0)
        .max(title.len());
    let width = u16::try_from(wanted + 4)
        .unwrap_or(u16::MAX)
        .min(area.width);
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let area = area.centered(Constraint::Length(width), Constraint::Length(height));
    let block = block(view).title(format!(" {title} "));
    let text = Paragraph::new(lines)
        .wrap(ratatui::widgets::Wrap { trim: false })
        .block(block);
    frame.render_widget(Clear, area);
    frame.render_widget(text, area);
}
