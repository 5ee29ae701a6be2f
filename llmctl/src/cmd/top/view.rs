//! What `llmctl top` shows, and what a key does to it. No IO and no clock.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::admin::{Finding, FindingCode, Peer, PeerState, Routes};
use router::Switch;
use router_core::decision::{Choice, Receipt};

/// Rows that PgUp and PgDn move by.
const PAGE: usize = 10;

/// The longest filter, characters.
const FILTER_MAX: usize = 64;

/// The answers of one router.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: Routes,
    pub(super) findings: Vec<Finding>,
    /// Newest first.
    pub(super) receipts: Vec<Receipt>,
}

/// One router: its last answers, and the reason why there are no newer ones.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) url: String,
    pub(super) seen: Option<(Seen, Instant)>,
    pub(super) error: Option<String>,
}

/// A key, as far as it means anything here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Quit,
}

/// What the program does after a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    Stay,
    Quit,
    Change(Change),
}

/// A switch to set on every router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) route: String,
    pub(super) switch: Switch,
    pub(super) on: bool,
}

/// The table that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Fleet,
    Requests,
}

/// What the keys go to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    /// The filter is being typed.
    Filter,
    /// A switch of this route is being chosen.
    Switches {
        route: String,
        at: usize,
    },
    /// One more key decides.
    Confirm(Change),
}

/// The page.
#[derive(Debug)]
pub(super) struct View {
    pub(super) members: Vec<Member>,
    pub(super) pane: Pane,
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) frozen: bool,
    pub(super) colour: bool,
    /// Whether the terminal shows ASCII alone.
    pub(super) ascii: bool,
    /// The column by which each pane is sorted.
    sorts: [usize; 2],
    selected: usize,
    route: Option<String>,
    /// What the last change did.
    pub(super) note: Option<String>,
}

/// One line of the fleet: a peer of a pool, on all routers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PeerRow {
    pub(super) route: String,
    pub(super) name: String,
    /// The worst of all routers.
    pub(super) state: State,
    /// In flight by router; `None` where the router does not know the peer.
    pub(super) in_flight: Vec<Option<u32>>,
    pub(super) max: u32,
    pub(super) ttft_ms: Option<u64>,
    pub(super) failed: usize,
    pub(super) attempts: usize,
    pub(super) hits: Option<u64>,
}

/// A peer's state, worst last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Fine(&'static str),
    Busy(&'static str),
    Out(&'static str),
}

impl State {
    fn of(peer: &Peer) -> Self {
        if !peer.enabled {
            Self::Fine("disabled")
        } else if peer.banned {
            Self::Out("banned")
        } else if peer.state.is_out() {
            Self::Out(peer.state.as_str())
        } else if peer.state != PeerState::Healthy {
            Self::Busy(peer.state.as_str())
        } else if peer.draining {
            Self::Busy("draining")
        } else if peer.in_flight >= peer.max {
            Self::Busy("full")
        } else {
            Self::Fine("healthy")
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Fine(word) | Self::Busy(word) | Self::Out(word) => word,
        }
    }
}

/// One line of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestRow {
    pub(super) at_unix_ms: u64,
    pub(super) id: String,
    pub(super) route: String,
    pub(super) model: String,
    pub(super) peer: String,
    pub(super) status: u16,
    pub(super) ttft_ms: Option<u64>,
    pub(super) duration_ms: u64,
    pub(super) tokens: Option<(u64, u64)>,
    pub(super) mode: String,
}

impl View {
    pub(super) fn new(routers: Vec<String>, route: Option<String>) -> Self {
        let member = |url| Member {
            url,
            seen: None,
            error: None,
        };
        Self {
            members: routers.into_iter().map(member).collect(),
            pane: Pane::Fleet,
            mode: Mode::Table,
            filter: String::new(),
            frozen: false,
            colour: true,
            ascii: false,
            sorts: [0, 0],
            selected: 0,
            route,
            note: None,
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Takes the routers' answers, in their order. What a silent router said before stays, with its
    /// age.
    pub(super) fn saw(&mut self, answers: Vec<Result<Seen, String>>, now: Instant) {
        if self.frozen {
            return;
        }
        for (member, answer) in self.members.iter_mut().zip(answers) {
            match answer {
                Ok(seen) => {
                    member.seen = Some((seen, now));
                    member.error = None;
                }
                Err(error) => member.error = Some(error),
            }
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Says what a change did.
    pub(super) fn changed(&mut self, change: &Change, said: Result<(), String>) {
        let word = if change.on { "on" } else { "off" };
        self.note = Some(match said {
            Ok(()) => format!(
                "{} of {} is {word} until it is reset (llmctl toggle {} --reset)",
                change.switch.name(),
                change.route,
                change.switch.name()
            ),
            Err(error) => error,
        });
    }

    /// Age of the oldest numbers on the page; `None` before all routers answered once.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        let ages = self.members.iter().map(|member| {
            let (_, at) = member.seen.as_ref()?;
            Some(now.saturating_duration_since(*at))
        });
        ages.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The problems of all routers, worst first, each once.
    pub(super) fn problems(&self) -> Vec<&Finding> {
        let mut found: Vec<&Finding> = Vec::new();
        for finding in self.seen().flat_map(|seen| &seen.findings) {
            // A router newer than this program has codes that it cannot tell apart.
            let is_same = |other: &&Finding| {
                finding.code != FindingCode::Other
                    && (other.code, &other.route, &other.peer)
                        == (finding.code, &finding.route, &finding.peer)
            };
            if self.is_wanted(finding.route.as_deref()) && !found.iter().any(is_same) {
                found.push(finding);
            }
        }
        found.sort_by_key(|finding| (finding.severity, Reverse(finding.age_s)));
        found
    }

    fn is_wanted(&self, route: Option<&str>) -> bool {
        match (&self.route, route) {
            (Some(wanted), Some(route)) => wanted == route,
            _ => true,
        }
    }

    fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.members
            .iter()
            .filter_map(|member| Some(&member.seen.as_ref()?.0))
    }

    /// The fleet, filtered and sorted.
    pub(super) fn peers(&self) -> Vec<PeerRow> {
        let mut rows: Vec<PeerRow> = Vec::new();
        let mut at = BTreeMap::new();
        for (column, member) in self.members.iter().enumerate() {
            let Some((seen, _)) = &member.seen else {
                continue;
            };
            for route in seen
                .status
                .routes
                .iter()
                .filter(|route| self.is_wanted(Some(&route.name)))
            {
                for pool in &route.pools {
                    for peer in &pool.peers {
                        let key = (route.name.clone(), pool.model.clone(), peer.peer.clone());
                        let index = *at.entry(key).or_insert_with(|| {
                            rows.push(self.row(&route.name, pool.model.as_deref(), peer));
                            rows.len() - 1
                        });
                        rows[index].add(column, peer);
                    }
                }
            }
        }
        let filter = self.filter.to_lowercase();
        rows.retain(|row| {
            let text = format!("{} {} {}", row.route, row.name, row.state.word());
            text.to_lowercase().contains(&filter)
        });
        match self.sorts[0] {
            1 => rows.sort_by_key(|row| Reverse(row.state.clone())),
            2 => rows.sort_by_key(|row| Reverse(row.in_flight.iter().flatten().sum::<u32>())),
            3 => rows.sort_by_key(|row| Reverse(row.ttft_ms)),
            4 => rows.sort_by_key(|row| Reverse(row.failed)),
            _ => {}
        }
        rows
    }

    fn row(&self, route: &str, model: Option<&str>, peer: &Peer) -> PeerRow {
        let mut times = Vec::new();
        let (mut attempts, mut failed) = (0, 0);
        for receipt in self.seen().flat_map(|seen| &seen.receipts) {
            if *receipt.route != *route {
                continue;
            }
            for attempt in receipt
                .attempts
                .iter()
                .filter(|attempt| *attempt.peer.as_str() == *peer.peer)
            {
                attempts += 1;
                if attempt.error.is_some() || attempt.failure.is_some() {
                    failed += 1;
                } else {
                    times.extend(receipt.ttft_ms);
                }
            }
        }
        times.sort_unstable();
        let pool = model.map_or(String::new(), |model| format!("/{model}"));
        PeerRow {
            route: format!("{route}{pool}"),
            name: peer.name.clone(),
            state: State::Fine("healthy"),
            in_flight: vec![None; self.members.len()],
            max: peer.max,
            ttft_ms: times.get(times.len() / 2).copied(),
            failed,
            attempts,
            hits: None,
        }
    }

    /// The last requests of all routers, filtered and sorted.
    pub(super) fn requests(&self) -> Vec<RequestRow> {
        let filter = self.filter.to_lowercase();
        let receipts = self.seen().flat_map(|seen| &seen.receipts);
        let mut rows: Vec<RequestRow> = receipts
            .filter(|receipt| self.is_wanted(Some(&receipt.route)))
            .map(RequestRow::of)
            .filter(|row| row.text().to_lowercase().contains(&filter))
            .collect();
        rows.sort_by_key(|row| Reverse(row.at_unix_ms));
        match self.sorts[1] {
            1 => rows.sort_by_key(|row| Reverse(row.status)),
            2 => rows.sort_by_key(|row| Reverse(row.ttft_ms)),
            3 => rows.sort_by_key(|row| Reverse(row.duration_ms)),
            _ => {}
        }
        rows
    }

    /// Names of the columns that a pane can be sorted by.
    pub(super) fn sorts(&self) -> &'static [&'static str] {
        match self.pane {
            Pane::Fleet => &["file order", "state", "in flight", "ttft", "failed"],
            Pane::Requests => &["newest", "status", "ttft", "duration"],
        }
    }

    /// The column that the pane is sorted by.
    pub(super) fn sorted_by(&self) -> &'static str {
        self.sorts()[self.sorts[self.pane as usize]]
    }

    fn rows(&self) -> usize {
        match self.pane {
            Pane::Fleet => self.peers().len(),
            Pane::Requests => self.requests().len(),
        }
    }

    /// The selected row.
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    /// What a switch of a route stands at, on the first router that has the route.
    pub(super) fn switch(&self, route: &str, switch: Switch) -> Option<bool> {
        let mut routes = self.seen().flat_map(|seen| &seen.status.routes);
        let route = routes.find(|one| one.name == route)?;
        Some(route.switches.get(switch.name())?.enabled)
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: Key) -> Then {
        if key == Key::Quit {
            return Then::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => return self.press_table(key),
            Mode::Filter => self.press_filter(key),
            Mode::Switches { route, at } => self.press_switches(key, route, at),
            Mode::Confirm(change) => match key {
                Key::Char('y' | 'Y') => return Then::Change(change),
                _ => self.note = Some("nothing was changed".to_owned()),
            },
        }
        Then::Stay
    }

    fn press_table(&mut self, key: Key) -> Then {
        let last = self.rows().saturating_sub(1);
        match key {
            Key::Char('q') => return Then::Quit,
            Key::Tab => self.turn_to(match self.pane {
                Pane::Fleet => Pane::Requests,
                Pane::Requests => Pane::Fleet,
            }),
            Key::Char('1') => self.turn_to(Pane::Fleet),
            Key::Char('2') => self.turn_to(Pane::Requests),
            Key::Char('f') => self.frozen = !self.frozen,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('s') => {
                let count = self.sorts().len();
                let sort = &mut self.sorts[self.pane as usize];
                *sort = (*sort + 1) % count;
            }
            Key::Char('t') => self.choose_switch(),
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => self.selected = (self.selected + 1).min(last),
            Key::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            Key::PageDown => self.selected = (self.selected + PAGE).min(last),
            Key::Escape => self.filter.clear(),
            _ => {}
        }
        Then::Stay
    }

    fn turn_to(&mut self, pane: Pane) {
        self.pane = pane;
        self.selected = 0;
    }

    fn choose_switch(&mut self) {
        let route = match self.pane {
            Pane::Fleet => self.peers().get(self.selected).map(|row| row.route.clone()),
            Pane::Requests => self
                .requests()
                .get(self.selected)
                .map(|row| row.route.clone()),
        };
        if let Some(route) = route {
            let route = route.split('/').next().unwrap_or_default().to_owned();
            self.mode = Mode::Switches { route, at: 0 };
        }
    }

    fn press_filter(&mut self, key: Key) {
        self.mode = Mode::Filter;
        match key {
            Key::Enter => self.mode = Mode::Table,
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX && !c.is_control() => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.selected = 0;
    }

    fn press_switches(&mut self, key: Key, route: String, at: usize) {
        let at = match key {
            Key::Up => at.saturating_sub(1),
            Key::Down => (at + 1).min(Switch::ALL.len() - 1),
            Key::Escape | Key::Char('q') => return,
            Key::Enter => {
                let switch = Switch::ALL[at];
                if let Some(on) = self.switch(&route, switch) {
                    self.mode = Mode::Confirm(Change {
                        route,
                        switch,
                        on: !on,
                    });
                }
                return;
            }
            _ => at,
        };
        self.mode = Mode::Switches { route, at };
    }
}

impl PeerRow {
    fn add(&mut self, column: usize, peer: &Peer) {
        let state = State::of(peer);
        if column == 0 || state > self.state {
            self.state = state;
        }
        self.in_flight[column] = Some(peer.in_flight);
        if self.hits.is_none() {
            self.hits = peer.hits.and_then(|hits| hits.last_5m.percent());
        }
    }
}

impl RequestRow {
    fn of(receipt: &Receipt) -> Self {
        let served = receipt
            .attempts
            .last()
            .map(|attempt| attempt.peer.to_string());
        Self {
            at_unix_ms: receipt.at_unix_ms,
            id: receipt.request_id.to_string(),
            route: receipt.route.to_string(),
            model: receipt.model.as_deref().unwrap_or("-").to_owned(),
            peer: served.unwrap_or_else(|| "-".to_owned()),
            status: receipt.status,
            ttft_ms: receipt.ttft_ms,
            duration_ms: receipt.duration_ms,
            tokens: receipt.usage.map(|usage| (usage.prompt, usage.completion)),
            mode: match &receipt.decision {
                Choice::Send { mode, .. } => mode.as_str().to_owned(),
                Choice::Wait { .. } => "waited".to_owned(),
                Choice::Refuse(_) => "refused".to_owned(),
                Choice::Rule { name, .. } => format!("rule {name}"),
            },
        }
    }

    fn text(&self) -> String {
        format!(
            "{} {} {} {} {} {}",
            self.id, self.route, self.model, self.peer, self.status, self.mode
        )
    }
}
