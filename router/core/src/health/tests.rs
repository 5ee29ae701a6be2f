use super::*;
use crate::testing::start;

const SECOND: Duration = Duration::from_secs(1);
const STREAM: AnswerKind = AnswerKind::Stream;

/// A peer in a tier that can do without it, and the clock.
struct Peer {
    health: Health,
    spec: HealthSpec,
    may_leave: bool,
    siblings_answer: bool,
    /// Whether the engine's metrics show no progress.
    is_stuck: bool,
    /// The longest recent wait of the other peers.
    siblings: Duration,
    epoch: Instant,
    now: Instant,
}

impl Peer {
    fn new() -> Self {
        Self {
            health: Health::default(),
            spec: HealthSpec::default(),
            may_leave: true,
            siblings_answer: false,
            is_stuck: false,
            siblings: Duration::ZERO,
            epoch: start(),
            now: start(),
        }
    }

    fn begin(&mut self) -> Attempt {
        self.health.begin(STREAM, self.now)
    }

    fn first_byte(&mut self, attempt: &mut Attempt) {
        self.health
            .first_byte(attempt, &self.spec, self.epoch, self.now);
    }

    fn end(&mut self, mut attempt: Attempt, end: AttemptEnd) {
        let may_leave = self.may_leave;
        self.health
            .end(&mut attempt, end, &self.spec, || may_leave, self.now);
    }

    /// One attempt that ends at once.
    fn once(&mut self, end: AttemptEnd) {
        let attempt = self.begin();
        self.end(attempt, end);
    }

    fn fail(&mut self, times: u32) {
        for _ in 0..times {
            self.once(AttemptEnd::Failed(Failure::ServerError));
        }
    }

    /// The steps that the book performs at each check.
    fn judge(&mut self) -> Option<Instant> {
        let (siblings, epoch, now) = (self.siblings, self.epoch, self.now);
        let own = |kind| self.health.longest_wait(kind, epoch, now);
        let longest = |kind| siblings.max(own(kind));
        match self.health.silence(&self.spec, self.is_stuck, longest, now) {
            SilenceVerdict::Fine(due) => due,
            SilenceVerdict::TooLong(lasted) => {
                let siblings = match (self.may_leave, self.siblings_answer) {
                    (false, _) => Siblings::Needed,
                    (true, false) => Siblings::Serve,
                    (true, true) => Siblings::Answer,
                };
                self.health.hang(lasted, &self.spec, siblings, now);
                None
            }
        }
    }

    fn pass(&mut self, seconds: u32) {
        self.now += SECOND * seconds;
        self.health.pass(self.now);
    }

    fn state(&self) -> HealthState {
        self.health.state(self.now)
    }

    fn access(&self) -> Access {
        self.health.access(self.now)
    }
}

#[test]
fn five_failures_in_a_row_eject_and_one_success_between_does_not() {
    let mut peer = Peer::new();
    peer.fail(4);
    peer.once(AttemptEnd::Served);
    peer.fail(4);
    assert_eq!(peer.state(), HealthState::Healthy);
    peer.fail(1);
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Ejected, Access::Closed)
    );
    let change = *peer.health.take_changes().last().unwrap();
    assert_eq!(
        (change.from, change.to),
        (HealthState::Healthy, HealthState::Ejected)
    );
    assert_eq!(change.lasts, Some(SECOND * 30));
    let said = change.cause.to_string();
    assert_eq!(said, "5 failures in a row, the last one server_error");
}

#[test]
fn half_of_ten_within_the_window_eject() {
    let mut peer = Peer::new();
    for _ in 0..4 {
        peer.once(AttemptEnd::Failed(Failure::Cut));
        peer.once(AttemptEnd::Served);
    }
    peer.once(AttemptEnd::Failed(Failure::Cut));
    assert_eq!(peer.state(), HealthState::Healthy, "nine are too few");
    peer.once(AttemptEnd::Failed(Failure::Cut));
    assert_eq!(peer.state(), HealthState::Ejected);
}

#[test]
fn what_is_not_the_peers_fault_counts_for_nothing() {
    let mut peer = Peer::new();
    for _ in 0..100 {
        peer.once(AttemptEnd::Neutral);
        peer.once(AttemptEnd::Abandoned);
        peer.once(AttemptEnd::Failed(Failure::NoConnection));
    }
    peer.fail(4);
    assert_eq!(peer.state(), HealthState::Healthy);
    let counts = peer.health.counts();
    assert_eq!(counts.abandoned, 100);
    assert_eq!(counts.failed[Failure::NoConnection as usize], 100);
}

#[test]
fn a_peer_its_tier_cannot_do_without_stays() {
    let mut peer = Peer::new();
    peer.may_leave = false;
    peer.fail(50);
    assert_eq!(peer.state(), HealthState::Healthy);
    peer.may_leave = true;
    peer.fail(1);
    assert_eq!(peer.state(), HealthState::Ejected, "judged after each end");
}

#[test]
fn after_its_time_one_request_goes_there_and_its_first_byte_brings_the_peer_back() {
    let mut peer = Peer::new();
    peer.fail(5);
    peer.pass(29);
    assert_eq!(peer.access(), Access::Closed);
    peer.pass(1);
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Probing, Access::One)
    );
    let mut probe = peer.begin();
    assert_eq!(peer.access(), Access::Closed, "one at a time");
    peer.pass(2);
    peer.first_byte(&mut probe);
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Returning, Access::Ramp(1))
    );
    peer.pass(15);
    assert_eq!(peer.access(), Access::Ramp(6));
    assert_eq!(peer.health.due(peer.now), Some(peer.now + SECOND * 3));
    peer.pass(15);
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Healthy, Access::Open)
    );
}

#[test]
fn a_failed_probe_ejects_for_twice_as_long_up_to_a_bound() {
    let mut peer = Peer::new();
    peer.fail(5);
    for seconds in [30, 60, 120, 240, 300, 300] {
        peer.pass(seconds - 1);
        assert_eq!(peer.state(), HealthState::Ejected, "{seconds} s");
        peer.pass(1);
        assert_eq!(peer.state(), HealthState::Probing, "{seconds} s");
        peer.fail(1);
    }
}

#[test]
fn the_first_answer_of_a_returning_peer_has_to_end_well() {
    let mut peer = Peer::new();
    peer.fail(5);
    peer.pass(30);
    let mut probe = peer.begin();
    peer.first_byte(&mut probe);
    peer.end(probe, AttemptEnd::Failed(Failure::Cut));
    assert_eq!(peer.state(), HealthState::Ejected);
    peer.pass(60);
    let mut probe = peer.begin();
    peer.first_byte(&mut probe);
    peer.end(probe, AttemptEnd::Served);
    peer.fail(1);
    assert_eq!(
        peer.state(),
        HealthState::Returning,
        "one failure is forgiven then"
    );
}

#[test]
fn a_probe_that_says_nothing_makes_room_for_the_next() {
    let mut peer = Peer::new();
    peer.fail(5);
    peer.pass(30);
    peer.once(AttemptEnd::Neutral);
    peer.once(AttemptEnd::Abandoned);
    assert_eq!(peer.access(), Access::One);
    let probe = peer.begin();
    peer.pass(6);
    peer.end(probe, AttemptEnd::Abandoned);
    assert_eq!(
        peer.state(),
        HealthState::Ejected,
        "its client waited in vain"
    );
}

#[test]
fn attempts_from_before_an_ejection_say_nothing_after_it() {
    let mut peer = Peer::new();
    let mut old: Vec<Attempt> = (0..9).map(|_| peer.begin()).collect();
    peer.fail(5);
    peer.end(old.remove(0), AttemptEnd::Served);
    assert_eq!(peer.state(), HealthState::Ejected);
    peer.pass(30);
    let mut late = old.remove(0);
    peer.first_byte(&mut late);
    assert_eq!(peer.state(), HealthState::Probing);
    for attempt in old {
        peer.end(attempt, AttemptEnd::Failed(Failure::Cut));
    }
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Probing, Access::One)
    );
}

#[test]
fn a_long_healthy_time_makes_the_next_ejection_short_again() {
    let mut peer = Peer::new();
    for (healthy, expected) in [(0, 30), (10, 60), (400, 30)] {
        peer.pass(healthy);
        peer.fail(5);
        let change = *peer.health.take_changes().last().unwrap();
        assert_eq!(change.lasts, Some(SECOND * expected));
        peer.pass(expected);
        peer.once(AttemptEnd::Served);
        peer.pass(30);
        assert_eq!(peer.state(), HealthState::Healthy);
    }
}

#[test]
fn silence_makes_suspect_and_a_first_byte_clears_it() {
    let mut peer = Peer::new();
    let mut waiting = peer.begin();
    peer.pass(299);
    let due = peer.judge();
    assert_eq!(
        (peer.state(), due),
        (HealthState::Healthy, Some(peer.now + SECOND))
    );
    peer.pass(1);
    peer.judge();
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Suspect, Access::Warm)
    );
    peer.first_byte(&mut waiting);
    assert_eq!(peer.state(), HealthState::Healthy);
}

/// A suspect peer on which this many requests wait.
fn suspect(requests: usize) -> (Peer, Vec<Attempt>) {
    let mut peer = Peer::new();
    peer.spec.hang_after = Some(SECOND * 10);
    peer.siblings_answer = true;
    let waiting = (0..requests).map(|_| peer.begin()).collect();
    peer.pass(10);
    peer.judge();
    assert_eq!(peer.state(), HealthState::Suspect);
    (peer, waiting)
}

#[test]
fn a_suspect_that_keeps_five_requests_waiting_while_others_answer_is_ejected() {
    let (mut peer, mut waiting) = suspect(5);
    peer.pass(4);
    peer.judge();
    assert_eq!(peer.state(), HealthState::Suspect, "five seconds of grace");
    peer.end(waiting.remove(0), AttemptEnd::Abandoned);
    peer.pass(1);
    peer.judge();
    assert_eq!(peer.state(), HealthState::Ejected);
    let cause = peer.health.facts(peer.now).cause.unwrap();
    assert_eq!(
        cause,
        "no first byte for 15 s: 5 requests waited while other peers answered"
    );
}

#[test]
fn weak_evidence_ejects_no_suspect() {
    let (mut few, _few) = suspect(4);
    let (mut alone, _alone) = suspect(5);
    alone.siblings_answer = false;
    let (mut needed, _needed) = suspect(5);
    needed.may_leave = false;
    let (mut off, _off) = suspect(5);
    off.spec.eject = None;
    for peer in [&mut few, &mut alone, &mut needed, &mut off] {
        peer.pass(20);
        peer.judge();
        assert_eq!(peer.state(), HealthState::Suspect);
    }
}

#[test]
fn a_first_byte_from_before_ends_an_ejection_for_silence() {
    for seconds in [1, 40] {
        let (mut peer, mut waiting) = suspect(5);
        peer.pass(5);
        peer.judge();
        assert_eq!(peer.state(), HealthState::Ejected);
        peer.pass(seconds);
        peer.first_byte(&mut waiting[0]);
        assert_eq!(peer.state(), HealthState::Returning, "{seconds} s later");
    }
}

#[test]
fn an_abandoned_probe_ejects_no_peer_that_has_come_back_meanwhile() {
    let (mut peer, mut waiting) = suspect(5);
    peer.pass(5);
    peer.judge();
    peer.pass(30);
    let probe = peer.begin();
    peer.first_byte(&mut waiting[0]);
    peer.pass(6);
    peer.end(probe, AttemptEnd::Abandoned);
    assert_eq!(peer.state(), HealthState::Returning);
}

#[test]
fn an_engine_that_shows_load_and_no_progress_is_suspect_sooner() {
    let mut peer = Peer::new();
    peer.is_stuck = true;
    peer.begin();
    peer.pass(60);
    peer.judge();
    assert_eq!(peer.state(), HealthState::Suspect);
}

#[test]
fn hang_after_replaces_both_bounds_and_long_recent_waits_stretch_it() {
    let mut peer = Peer::new();
    peer.spec.hang_after = Some(SECOND * 10);
    peer.siblings = SECOND * 20;
    peer.begin();
    peer.pass(39);
    peer.judge();
    assert_eq!(
        peer.state(),
        HealthState::Healthy,
        "twice the longest recent wait"
    );
    peer.pass(1);
    peer.judge();
    assert_eq!(peer.state(), HealthState::Suspect);
}

#[test]
fn clients_that_give_up_leave_their_waiting_behind() {
    let mut peer = Peer::new();
    peer.spec.hang_after = Some(SECOND * 60);
    for _ in 0..10 {
        let attempt = peer.begin();
        peer.pass(6);
        peer.end(attempt, AttemptEnd::Abandoned);
        peer.pass(5);
        peer.judge();
    }
    assert_eq!(peer.state(), HealthState::Suspect);
}

#[test]
fn a_suspect_peer_without_anybody_waiting_is_probed_after_its_time() {
    let mut peer = Peer::new();
    peer.spec.hang_after = Some(SECOND * 10);
    let attempt = peer.begin();
    peer.pass(10);
    peer.judge();
    peer.pass(30);
    assert_eq!(peer.state(), HealthState::Suspect, "somebody still waits");
    peer.end(attempt, AttemptEnd::Abandoned);
    peer.pass(0);
    assert_eq!(
        (peer.state(), peer.access()),
        (HealthState::Probing, Access::One)
    );
    let mut probe = peer.begin();
    peer.pass(10);
    peer.judge();
    assert_eq!(
        peer.state(),
        HealthState::Suspect,
        "the probe got no first byte"
    );
    peer.first_byte(&mut probe);
    assert_eq!(peer.state(), HealthState::Healthy);
}

#[test]
fn ejection_switched_off_leaves_failing_peers_alone() {
    let mut peer = Peer::new();
    peer.spec.eject = None;
    peer.fail(100);
    assert_eq!(peer.state(), HealthState::Healthy);
}

#[test]
fn at_most_half_of_a_tier_is_out_and_never_its_last_peer() {
    let eject = EjectSpec::default();
    assert_eq!(
        [0, 1, 2, 3, 6, 7].map(|peers| eject.most_out(peers)),
        [0, 0, 1, 1, 3, 3]
    );
    let all = EjectSpec {
        max_share: 1.0,
        ..eject
    };
    assert_eq!([1, 2, 6].map(|peers| all.most_out(peers)), [0, 1, 5]);
}
