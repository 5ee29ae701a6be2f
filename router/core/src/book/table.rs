//! State by key, accessed by index. A slot lives as long as it has a holder, then it is reused.

use std::collections::BTreeMap;

/// Slots of `S`, one per key. Their number is bounded by the number of keys held at once: a slot
/// without a holder is vacant, and the next new key takes it.
#[derive(Debug)]
pub(super) struct Table<K, S> {
    /// Index = the number that holders keep. `None` = vacant.
    entries: Vec<Option<Entry<K, S>>>,
    /// Vacant indices.
    vacant: Vec<u32>,
    by_key: BTreeMap<K, u32>,
}

#[derive(Debug)]
struct Entry<K, S> {
    key: K,
    /// Number of holders, at least 1.
    holders: u32,
    state: S,
}

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, S: Default> Table<K, S> {
    /// The slot of `key`, created if it is new, with one more holder.
    pub(super) fn acquire(&mut self, key: &K) -> u32 {
        if let Some(index) = self.find(key) {
            self.hold(index);
            return index;
        }
        let entry = Some(Entry {
            key: key.clone(),
            holders: 1,
            state: S::default(),
        });
        let index = match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 peers are configured")
            }
        };
        self.by_key.insert(key.clone(), index);
        index
    }

    /// The slot of `key`, if it has a holder.
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// Adds a holder to a held slot.
    pub(super) fn hold(&mut self, index: u32) {
        self.entry_mut(index).holders += 1;
    }

    /// Removes a holder. Returns true when it was the last one, so that the slot is vacant now.
    pub(super) fn release_hold(&mut self, index: u32) -> bool {
        let entry = self.entry_mut(index);
        entry.holders -= 1;
        if entry.holders == 0
            && let Some(entry) = self.entries[index as usize].take()
        {
            self.by_key.remove(&entry.key);
            self.vacant.push(index);
            return true;
        }
        false
    }

    /// The state of a held slot.
    #[inline]
    pub(super) fn get(&self, index: u32) -> &S {
        let entry = self.entries[index as usize].as_ref();
        &entry.expect("whoever has an index holds its slot").state
    }

    /// The state of a held slot.
    pub(super) fn get_mut(&mut self, index: u32) -> &mut S {
        &mut self.entry_mut(index).state
    }

    /// The state of every held slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.entries.iter().flatten().map(|entry| &entry.state)
    }

    /// The state of every held slot.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        let entries = self.entries.iter_mut().flatten();
        entries.map(|entry| &mut entry.state)
    }

    /// Number of holders of all slots.
    pub(super) fn holders(&self) -> u64 {
        self.entries
            .iter()
            .flatten()
            .map(|entry| u64::from(entry.holders))
            .sum()
    }

    /// Debug-asserts that keys, held slots and vacant slots are consistent.
    pub(super) fn check(&self) {
        debug_assert_eq!(self.by_key.len() + self.vacant.len(), self.entries.len());
        debug_assert!(
            self.vacant
                .iter()
                .all(|index| self.entries[*index as usize].is_none())
        );
        for (key, index) in &self.by_key {
            let entry = self.entries[*index as usize].as_ref();
            debug_assert!(entry.is_some_and(|entry| entry.key == *key && entry.holders > 0));
        }
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<K, S> {
        self.entries[index as usize]
            .as_mut()
            .expect("whoever has an index holds its slot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_lives_as_long_as_it_is_held_and_is_then_reused() {
        let mut table: Table<&str, u8> = Table::default();
        let a = table.acquire(&"a");
        *table.get_mut(a) = 7;
        assert_eq!(table.acquire(&"a"), a);
        table.release_hold(a);
        assert_eq!((table.find(&"a"), *table.get(a)), (Some(a), 7));
        table.release_hold(a);
        assert_eq!(table.find(&"a"), None);
        let b = table.acquire(&"b");
        assert_eq!(
            (b, *table.get(b)),
            (a, 0),
            "the slot is reused, its state is not"
        );
        table.check();
    }
}
