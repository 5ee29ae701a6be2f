//! Tracks which peer owns a remembered entry, although peer numbers are reused.
//!
//! A table of sessions or prefixes may hold many entries of one peer. When a peer goes, the next
//! new peer gets its number. So each entry also carries the generation of its number: the entries
//! of a removed peer become void at once, without a walk over the table.

/// One of the peers that had a number, in sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    /// The peer number.
    pub(super) peer: u32,
    generation: u32,
}

/// The peers of one table, and the number of entries of each.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// Index = number.
    numbers: Vec<Number>,
    /// Entries whose peer is gone.
    void: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Number {
    /// Generation of the peer that has the number now.
    generation: u32,
    entries: u32,
}

impl Tenants {
    /// The peer that has a number now. Allocates for a number not seen before.
    pub(super) fn of(&mut self, peer: u32) -> Tenant {
        let place = peer as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, Number::default());
        }
        let generation = self.numbers[place].generation;
        Tenant { peer, generation }
    }

    /// Whether the peer still has its number.
    pub(super) fn is_live(&self, tenant: Tenant) -> bool {
        let number = self.numbers.get(tenant.peer as usize);
        number.is_some_and(|number| number.generation == tenant.generation)
    }

    /// Counts a new entry of a live peer.
    pub(super) fn enter(&mut self, tenant: Tenant) {
        self.numbers[tenant.peer as usize].entries += 1;
    }

    /// Counts a removed entry. Returns false when its peer was removed before.
    pub(super) fn leave(&mut self, tenant: Tenant) -> bool {
        let is_live = self.is_live(tenant);
        if is_live {
            self.numbers[tenant.peer as usize].entries -= 1;
        } else {
            self.void -= 1;
        }
        is_live
    }

    /// Removes the peer. Another peer may get its number.
    pub(super) fn forget(&mut self, peer: u32) {
        if let Some(number) = self.numbers.get_mut(peer as usize) {
            self.void += number.entries as usize;
            *number = Number {
                generation: number.generation.wrapping_add(1),
                entries: 0,
            };
        }
    }

    /// Number of entries of the peer that has a number now.
    #[inline]
    pub(super) fn entries(&self, peer: u32) -> u32 {
        let number = self.numbers.get(peer as usize);
        number.map_or(0, |number| number.entries)
    }

    /// Number of entries whose peer is gone.
    pub(super) fn void(&self) -> usize {
        self.void
    }

    /// Debug-asserts that the counts match the entries of a table.
    pub(super) fn check(&self, entries: impl Iterator<Item = Tenant>) {
        let (mut counts, mut void) = (vec![0; self.numbers.len()], 0);
        for tenant in entries {
            match self.is_live(tenant) {
                true => counts[tenant.peer as usize] += 1,
                false => void += 1,
            }
        }
        let kept = self.numbers.iter().map(|number| number.entries);
        debug_assert!(kept.eq(counts));
        debug_assert_eq!(void, self.void);
    }
}
